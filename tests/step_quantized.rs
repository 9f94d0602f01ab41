//! Decode steps with 4-bit weights from checkpoints on the host emulator: a 16-bit checkpoint rounded as it is read, GPTQ (v1
//! and v2 zero points) and AWQ. Logits against a forward pass in f64 over the dequantised weights, which tells them from the
//! weights before quantisation. Skips aloud without the emulated kernels, unless WORKBENCH_REQUIRE_EMULATED is set.

use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use workbench::error::Result;
use workbench::kernels::w4a16::quantize::{dequantize, round_to_nearest};
use workbench::kernels::w4a16::shape::Spec;
use workbench::op::{Chip, DType, Shape};
use workbench::plan::decode::{self, Options, Weights};
use workbench::plan::model::Model;
use workbench::run::step::checkpoint::Checkpoint;
use workbench::run::step::resident::Resident;
use workbench::run::{Emulator, Executor};

const PROMPT: [i32; 7] = [1, 17, 300, 42, 42, 250, 9];
const AWQ_ORDER: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];

/// Matrices [rows, columns] and vectors by tensor name.
type Tensors = BTreeMap<String, (Vec<usize>, Vec<f64>)>;

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny-llama")
}

fn tensors() -> Tensors {
    let file = std::fs::read(fixture().join("model.safetensors")).unwrap();
    let parsed = SafeTensors::deserialize(&file).unwrap();
    let read = |t: TensorView<'_>| {
        assert_eq!(t.dtype(), Dtype::BF16);
        t.data().chunks_exact(2).map(|c| half::bf16::from_le_bytes([c[0], c[1]]).to_f64()).collect()
    };
    parsed.tensors().into_iter().map(|(name, t)| (name, (t.shape().to_vec(), read(t)))).collect()
}

/// Whether the step multiplies this tensor by 4-bit weights.
fn projection(name: &str) -> bool {
    name.ends_with("_proj.weight")
}

/// A quantised layer, w[o, i] = (q - z) s.
struct Layer {
    n: usize,
    k: usize,
    group: usize,
    q: Vec<u32>,      // [k, n]
    zeros: Vec<u32>,  // [groups, n]
    scales: Vec<f64>, // [groups, n], exact in bf16 and f16
}

impl Layer {
    fn of(shape: &[usize], w: &[f64], group: usize) -> Self {
        let (n, k) = (shape[0], shape[1]);
        let groups = k / group;
        let mut l = Self { n, k, group, q: vec![0; k * n], zeros: vec![0; groups * n], scales: vec![0.0; groups * n] };
        for o in 0..n {
            for g in 0..groups {
                let values = &w[o * k + g * group..][..group];
                let most = values.iter().fold(0.0f64, |m, v| m.max(v.abs()));
                let s = half::bf16::from_f64(most / 6.0).to_f64();
                let z = 5 + ((o * 7 + g * 3) % 6) as u32;
                (l.scales[g * n + o], l.zeros[g * n + o]) = (s, z);
                for (i, v) in values.iter().enumerate() {
                    l.q[(g * group + i) * n + o] = ((v / s).round() + f64::from(z)).clamp(0.0, 15.0) as u32;
                }
            }
        }
        l
    }

    fn weights(&self) -> Vec<f64> {
        let mut w = Vec::with_capacity(self.n * self.k);
        for o in 0..self.n {
            for i in 0..self.k {
                let at = i / self.group * self.n + o;
                w.push((f64::from(self.q[i * self.n + o]) - f64::from(self.zeros[at])) * self.scales[at]);
            }
        }
        w
    }

    fn words(&self, values: &[u32], order: [usize; 8]) -> Vec<u8> {
        values
            .chunks(8)
            .flat_map(|eight| (0..8).fold(0u32, |w, i| w | eight[order[i]] << (4 * i)).to_le_bytes())
            .collect()
    }

    /// Tensors as AutoGPTQ (`minus`: what the stored zero points lack) and AutoAWQ write them.
    fn gptq(&self, minus: u32) -> Vec<(&'static str, Dtype, Vec<usize>, Vec<u8>)> {
        let mut q = Vec::new();
        for r in 0..self.k / 8 {
            for o in 0..self.n {
                q.extend((0..8).map(|i| self.q[(8 * r + i) * self.n + o]));
            }
        }
        let straight = [0, 1, 2, 3, 4, 5, 6, 7];
        let zeros: Vec<u32> = self.zeros.iter().map(|z| z - minus).collect();
        let g_idx = (0..self.k).flat_map(|i| ((i / self.group) as i32).to_le_bytes()).collect();
        vec![
            ("qweight", Dtype::I32, vec![self.k / 8, self.n], self.words(&q, straight)),
            ("qzeros", Dtype::I32, vec![self.k / self.group, self.n / 8], self.words(&zeros, straight)),
            ("scales", Dtype::F16, vec![self.k / self.group, self.n], self.scales16()),
            ("g_idx", Dtype::I32, vec![self.k], g_idx),
        ]
    }
    fn awq(&self) -> Vec<(&'static str, Dtype, Vec<usize>, Vec<u8>)> {
        vec![
            ("qweight", Dtype::I32, vec![self.k, self.n / 8], self.words(&self.q, AWQ_ORDER)),
            ("qzeros", Dtype::I32, vec![self.k / self.group, self.n / 8], self.words(&self.zeros, AWQ_ORDER)),
            ("scales", Dtype::F16, vec![self.k / self.group, self.n], self.scales16()),
        ]
    }
    fn scales16(&self) -> Vec<u8> {
        self.scales.iter().flat_map(|s| half::f16::from_f64(*s).to_le_bytes()).collect()
    }
}

/// The fixture with its projections quantised, in a folder, and the weights that this means.
fn quantised(
    group: usize,
    config: &str,
    pack: impl Fn(&Layer) -> Vec<(&'static str, Dtype, Vec<usize>, Vec<u8>)>,
) -> (tempfile::TempDir, Tensors) {
    let mut all = tensors();
    let mut files: Vec<(String, Dtype, Vec<usize>, Vec<u8>)> = Vec::new();
    for (name, (shape, values)) in &mut all {
        if projection(name) {
            let layer = Layer::of(shape, values, group);
            *values = layer.weights();
            let base = name.strip_suffix(".weight").unwrap();
            files.extend(pack(&layer).into_iter().map(|(part, t, s, b)| (format!("{base}.{part}"), t, s, b)));
        } else {
            let bytes = values.iter().flat_map(|v| half::bf16::from_f64(*v).to_le_bytes()).collect();
            files.push((name.clone(), Dtype::BF16, shape.clone(), bytes));
        }
    }
    let views = files.iter().map(|(n, t, s, b)| (n.clone(), TensorView::new(*t, s.clone(), b).unwrap()));
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("model.safetensors"), serialize(views, None).unwrap()).unwrap();
    let text = std::fs::read_to_string(fixture().join("config.json")).unwrap();
    let mut root: serde_json::Value = serde_json::from_str(&text).unwrap();
    root["quantization_config"] = serde_json::from_str(config).unwrap();
    std::fs::write(dir.path().join("config.json"), root.to_string()).unwrap();
    (dir, all)
}

fn matvec(w: &(Vec<usize>, Vec<f64>), x: &[f64]) -> Vec<f64> {
    w.1.chunks(w.0[1]).map(|row| row.iter().zip(x).map(|(a, b)| a * b).sum()).collect()
}

fn norm(x: &[f64], gain: &[f64], eps: f64) -> Vec<f64> {
    let r = 1.0 / (x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64 + eps).sqrt();
    x.iter().zip(gain).map(|(v, g)| v * r * g).collect()
}

/// Logits after each token of the prompt: Llama as its paper has it, in f64.
fn forward(t: &Tensors, model: &Model) -> Vec<Vec<f64>> {
    let (d, heads, kv_heads) = (model.head_dim as usize, model.heads as usize, model.kv_heads as usize);
    let get = |name: String| &t[&name];
    let rotate = |v: &mut [f64], position: usize| {
        for head in v.chunks_mut(d) {
            for i in 0..d / 2 {
                let angle = position as f64 * model.rope_theta.powf(-(2.0 * i as f64) / d as f64);
                let (a, b) = (head[i], head[i + d / 2]);
                head[i] = a * angle.cos() - b * angle.sin();
                head[i + d / 2] = b * angle.cos() + a * angle.sin();
            }
        }
    };
    // Keys and values of each position, by layer.
    let mut cache = vec![(Vec::<Vec<f64>>::new(), Vec::<Vec<f64>>::new()); model.layers as usize];
    let hidden = model.hidden as usize;
    let mut logits = Vec::new();
    for (position, token) in PROMPT.iter().enumerate() {
        let mut x = get("model.embed_tokens.weight".into()).1[*token as usize * hidden..][..hidden].to_vec();
        for (l, (keys, values)) in cache.iter_mut().enumerate() {
            let of = |name: &str| get(format!("model.layers.{l}.{name}.weight"));
            let h = norm(&x, &of("input_layernorm").1, model.rms_eps);
            let mut q = matvec(of("self_attn.q_proj"), &h);
            let mut k = matvec(of("self_attn.k_proj"), &h);
            rotate(&mut q, position);
            rotate(&mut k, position);
            keys.push(k);
            values.push(matvec(of("self_attn.v_proj"), &h));
            let mut attended = vec![0.0; heads * d];
            for head in 0..heads {
                let kv = head / (heads / kv_heads) * d;
                let dot = |k: &Vec<f64>| (0..d).map(|i| q[head * d + i] * k[kv + i]).sum::<f64>() / (d as f64).sqrt();
                let scores: Vec<f64> = keys.iter().map(dot).collect();
                let most = scores.iter().copied().fold(f64::MIN, f64::max);
                let sum: f64 = scores.iter().map(|s| (s - most).exp()).sum();
                for (s, v) in scores.iter().zip(values.iter()) {
                    for i in 0..d {
                        attended[head * d + i] += (s - most).exp() / sum * v[kv + i];
                    }
                }
            }
            let o = matvec(of("self_attn.o_proj"), &attended);
            x.iter_mut().zip(&o).for_each(|(x, o)| *x += o);
            let h = norm(&x, &of("post_attention_layernorm").1, model.rms_eps);
            let (gate, up) = (matvec(of("mlp.gate_proj"), &h), matvec(of("mlp.up_proj"), &h));
            let gated: Vec<f64> = gate.iter().zip(&up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
            let down = matvec(of("mlp.down_proj"), &gated);
            x.iter_mut().zip(&down).for_each(|(x, o)| *x += o);
        }
        logits.push(matvec(get("lm_head.weight".into()), &norm(&x, &get("model.norm.weight".into()).1, model.rms_eps)));
    }
    logits
}

/// The step's logits after each token of the prompt; none without the emulated kernels.
fn run(folder: &Path, group: u64, asymmetric: bool, variant: Option<&str>) -> Option<Result<Vec<Vec<f64>>>> {
    let mut exec = match Emulator::new(Chip::H200) {
        Ok(exec) => exec,
        Err(e) if std::env::var_os("WORKBENCH_REQUIRE_EMULATED").is_none() => {
            eprintln!("SKIPPED: {e}");
            return None;
        }
        Err(e) => panic!("{e}"),
    };
    Some(steps(&mut exec, folder, group, asymmetric, variant))
}

fn steps(
    exec: &mut dyn Executor,
    folder: &Path,
    group: u64,
    asymmetric: bool,
    variant: Option<&str>,
) -> Result<Vec<Vec<f64>>> {
    let model = Model::find(&folder.to_string_lossy())?;
    let positions = PROMPT.len() as u64;
    let weights = Weights::W4a16 { group, asymmetric };
    let options = Options { weights, ..Options::uniform(1, positions) };
    let (mut plan, handles) = decode::decode(&model, &options, &exec.chip())?;
    for node in plan.nodes.iter_mut().filter(|n| n.op == "w4a16") {
        node.variant = variant.map(str::to_string);
    }
    let checkpoint = Checkpoint::open(folder)?;
    let resident = Resident::load(exec, plan, handles, 1, Some(&checkpoint))?;
    let mut logits = Vec::new();
    for (i, token) in PROMPT.iter().enumerate() {
        resident.set(exec, &[*token], &[i as i32 + 1])?;
        resident.run(exec)?;
        exec.sync()?;
        logits.push(resident.logits(exec)?.into_iter().map(f64::from).collect());
    }
    resident.release(exec);
    Ok(logits)
}

/// ‖a - b‖ / ‖b‖.
fn distance(a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
    let pairs = || a.iter().flatten().zip(b.iter().flatten());
    (pairs().map(|(a, b)| (a - b).powi(2)).sum::<f64>() / pairs().map(|(_, b)| b * b).sum::<f64>()).sqrt()
}

/// The step agrees with the dequantised weights to the rounding of 16-bit activations, and is not the dense model.
fn agree(got: &[Vec<f64>], quantised: &Tensors, model: &Model) {
    let (near, far) = (distance(got, &forward(quantised, model)), distance(got, &forward(&tensors(), model)));
    assert!(near < workbench::run::step::expect::LOGIT_TOLERANCE, "{near} from the dequantised weights");
    assert!(far > 2.0 * near, "{far} from the dense weights, {near} from the dequantised");
}

fn tiny() -> Model {
    Model::find(&fixture().to_string_lossy()).unwrap()
}

#[test]
fn a_16_bit_checkpoint_is_rounded() {
    for (group, asymmetric) in [(64u64, false), (32, true)] {
        let mut all = tensors();
        // Rows are quantised by themselves, so stacked tensors may be taken one by one.
        for (_, (shape, values)) in all.iter_mut().filter(|(n, _)| projection(n)) {
            let zeros = if asymmetric { "asym" } else { "sym" };
            let text = format!("n={},k={},group={group},zeros={zeros}", shape[0], shape[1]);
            let spec = Spec::read(&Shape::parse(&text).unwrap()).unwrap();
            let floats: Vec<f32> = values.iter().map(|v| *v as f32).collect();
            let packed = round_to_nearest(&floats, &spec).unwrap();
            *values = dequantize(&packed, &spec).into_iter().map(f64::from).collect();
        }
        for variant in [None, Some("gemv_fixed")] {
            let Some(got) = run(&fixture(), group, asymmetric, variant) else { return };
            agree(&got.unwrap(), &all, &tiny());
        }
    }
}

#[test]
fn gptq_with_both_conventions_of_zero_points() {
    for (format, minus) in [("gptq", 1), ("gptq_v2", 0)] {
        let config = format!(r#"{{"quant_method":"gptq","bits":4,"group_size":64,"checkpoint_format":"{format}"}}"#);
        let (folder, all) = quantised(64, &config, |l| l.gptq(minus));
        let Some(got) = run(folder.path(), 64, true, None) else { return };
        agree(&got.unwrap(), &all, &tiny());
    }
}

#[test]
fn awq() {
    let config = r#"{"quant_method":"awq","bits":4,"group_size":32,"version":"gemm","zero_point":true}"#;
    let (folder, all) = quantised(32, config, Layer::awq);
    let Some(got) = run(folder.path(), 32, true, None) else { return };
    agree(&got.unwrap(), &all, &tiny());
}

#[test]
fn refusals_say_what_to_ask_for() {
    let config = r#"{"quant_method":"gptq","bits":4,"group_size":64}"#;
    let (folder, _) = quantised(64, config, |l| l.gptq(1));
    let (act_order, _) = quantised(64, config, |l| {
        let mut parts = l.gptq(1);
        // Every other input in the other half of the groups: full groups, out of order.
        let groups = l.k / l.group;
        parts[3].3 = (0..l.k).flat_map(|i| ((i % groups) as i32).to_le_bytes()).collect();
        parts
    });
    for (path, group, asymmetric, words) in [
        (folder.path(), 32, true, "a scale for 64 weights, the plan for 32 weights"),
        (folder.path(), 64, false, "zero points other than 8"),
        (act_order.path(), 64, true, "g_idx orders the inputs by importance (act-order"),
    ] {
        let Some(got) = run(path, group, asymmetric, None) else { return };
        let e = got.err().map(|e| e.to_string()).unwrap_or_default();
        assert!(e.contains(words), "{e}");
    }
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    let e = checkpoint.read("model.layers.0.mlp.down_proj.weight", DType::Bf16, 1).unwrap_err().to_string();
    assert!(e.contains("no tensor model.layers.0.mlp.down_proj.weight"), "{e}");
}
