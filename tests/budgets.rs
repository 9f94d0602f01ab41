//! Holds what the assembler made of every kernel against `kernels/budgets.json`, against the limits of each chip, and
//! against the instructions that a variant is there to use. Needs nvcc (`cargo xtask toolchain`) and no GPU; built
//! without nvcc, each test says aloud that it checked nothing.
//!
//! `cargo xtask budgets` writes the snapshot anew; the diff of that file is what a review should look at.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use workbench::kernels::{COMMON, OPS};
use workbench::launch::image::{IMAGES, Image, Resources, TOOLCHAIN, find};
use workbench::op::{Arch, Variant};
use workbench::toolchain;

/// A kernel that may spill.
struct Spill {
    image: &'static str,
    /// The kernel, or the beginning of its name before a `*`.
    kernel: &'static str,
    archs: &'static [&'static str],
    /// Bytes stored and loaded that are still right.
    bytes: u32,
    why: &'static str,
}

const MAY_SPILL: &[Spill] = &[
    Spill {
        image: "matmul/gemv",
        kernel: "matmul_gemv_*",
        archs: &["sm_80", "sm_90"],
        bytes: 16,
        why: "four blocks on an SM leave each thread 64 registers, one or two short",
    },
    Spill {
        image: "matmul/swap_ab",
        kernel: "matmul_swap_ab_*",
        archs: &["sm_90a"],
        bytes: 312,
        why: "sums take 64 of 96, 128 of 168 registers; what is spilled is needed before and after the products, not between",
    },
    Spill {
        image: "w4a16/gemv_fixed",
        kernel: "w4a16_gemv_fixed_*",
        archs: &["sm_80"],
        bytes: 48,
        why: "512 threads, twice on an SM or once, leave each 64 or 128 registers, one to six short on this chip only",
    },
    Spill {
        image: "w4a16/wgmma",
        kernel: "w4a16_wgmma_*",
        archs: &["sm_90a"],
        bytes: 144,
        why: "512 threads leave each 128 registers; sums of 32 and 64 columns and their fragments take 80 to 96 of them",
    },
];

impl Spill {
    fn allows(&self, image: &str, r: &Resources) -> bool {
        let kernel = self.kernel.strip_suffix('*').map_or(self.kernel == r.entry, |start| r.entry.starts_with(start));
        let bytes = r.spill_stores + r.spill_loads;
        self.image == image && kernel && self.archs.contains(&r.arch) && bytes > 0 && bytes <= self.bytes
    }
}

/// Static shared memory that a block can have, bytes: 48 KiB on every chip; the rest is dynamic and checked at launch.
const STATIC_SHARED: u32 = 48 << 10;

/// Instructions that must be found in the machine code of every kernel of these images (on 9.0 or 9.0a), but for their
/// helper kernels: the point of the variant.
struct Fact {
    what: &'static str,
    /// First words of an instruction and, after them, a modifier that it must have.
    one_of: &'static [(&'static str, &'static str)],
    images: &'static [&'static str],
    /// How the names of the kernels end that it is said of; none: all.
    only: &'static [&'static str],
}

const FACTS: &[Fact] = &[
    Fact {
        what: "products on the tensor cores",
        one_of: &[("HMMA.", ""), ("IMMA.", "")],
        images: &[
            "matmul/mma",
            "matmul/skinny",
            "paged_attention/split_cluster",
            "paged_attention/split_mma",
            "w4a16/gemv",
            "w4a16/gemv_bulk",
            "w4a16/gemv_fixed",
            "w4a16/gemv_ptx",
            "w4a16/mma",
        ],
        only: &[],
    },
    Fact {
        what: "warpgroup products",
        one_of: &[("HGMMA.", "")],
        images: &["matmul/swap_ab", "matmul/wgmma", "matmul/wgmma_cluster"],
        only: &[],
    },
    // From 32 rows on; below, 16-row products.
    Fact { what: "warpgroup products", one_of: &[("HGMMA.", "")], images: &["w4a16/wgmma"], only: &["_m32", "_m64"] },
    Fact {
        what: "products on the tensor cores",
        one_of: &[("HMMA.", "")],
        images: &["w4a16/wgmma"],
        only: &["_m8", "_m16"],
    },
    Fact {
        what: "tensor-map loads",
        one_of: &[("UTMALDG.", "")],
        images: &["matmul/swap_ab", "matmul/wgmma", "matmul/wgmma_cluster"],
        only: &[],
    },
    Fact {
        what: "bulk copies",
        one_of: &[("UBLKCP", "")],
        images: &["common/probe_bulk", "matmul/gemv_bulk", "softmax/bulk", "w4a16/gemv_bulk"],
        only: &[],
    },
    Fact {
        what: "16-byte loads",
        one_of: &[("LDG.E.", ".128"), ("LDGSTS.E.", ".128"), ("UBLKCP", "")],
        images: &[
            "argmax/block",
            "argmax/split",
            "embed/gather",
            "matmul/gemv",
            "matmul/gemv_async",
            "matmul/gemv_bulk",
            "matmul/gemv_ptx",
            "matmul/mma",
            "matmul/register",
            "matmul/skinny",
            "paged_attention/one_pass",
            "paged_attention/split",
            "paged_attention/split_cluster",
            "paged_attention/split_mma",
            "rmsnorm/block",
            "silu_mul/vector",
            "softmax/by_hand",
            "softmax/cluster",
            "softmax/fused",
            "softmax/online",
            "w4a16/gemv",
            "w4a16/gemv_bulk",
            "w4a16/gemv_fixed",
            "w4a16/gemv_ptx",
            "w4a16/mma",
        ],
        only: &[],
    },
];

/// Kernels that only prepare or join what the others work on.
const HELPERS: &[&str] = &["_join_", "_prepare_"];

impl Fact {
    fn is_of(&self, kernel: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|end| kernel.ends_with(end))
    }
    fn holds(&self, code: &str) -> bool {
        let is = |word: &str| {
            let modifier = |(start, modifier): &(&str, &str)| word.starts_with(start) && word.contains(modifier);
            self.one_of.iter().any(modifier)
        };
        code.split_whitespace().any(is)
    }
    fn words(&self) -> String {
        self.one_of.iter().map(|(start, modifier)| format!("{start}…{modifier}")).collect::<Vec<_>>().join(" or ")
    }
}

fn snapshot() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/budgets.json")
}

/// Whether there is machine code to look at. Under `WORKBENCH_REQUIRE_NVCC` its absence has failed the build already.
fn compiled(test: &str) -> bool {
    if TOOLCHAIN.nvcc.is_none() {
        eprintln!("{test}: SKIPPED, the kernels were built without nvcc (`cargo xtask toolchain` brings it)");
    }
    TOOLCHAIN.nvcc.is_some()
}

fn variants() -> impl Iterator<Item = (String, &'static Variant)> {
    let ops = OPS.iter().flat_map(|op| op.variants().iter().map(|v| (format!("{}/{}", op.name(), v.name), v)));
    ops.chain(COMMON.iter().map(|v| (format!("common/{}", v.name), v)))
}

fn rows() -> impl Iterator<Item = (&'static Image, &'static Resources)> {
    IMAGES.iter().flat_map(|i| i.resources.iter().map(move |r| (i, r)))
}

#[test]
fn every_variant_has_its_image() {
    let mut names: Vec<&str> = IMAGES.iter().map(|i| i.name).collect();
    for (name, variant) in variants() {
        let image = find(&name).unwrap_or_else(|| panic!("{name} is registered and has no image"));
        assert!(!image.source.is_empty() && image.emulated == variant.emulated, "{name}");
        names.retain(|n| *n != name);
    }
    assert!(names.is_empty(), "images of no variant: {names:?}");
}

/// What the snapshot keeps of one kernel on one chip.
fn line(r: &Resources) -> String {
    format!("{} registers, {} B stack, {} B static shared", r.registers, r.stack, r.shared)
}

#[test]
fn resources_agree_with_the_snapshot() {
    if !compiled("resources_agree_with_the_snapshot") {
        return;
    }
    let version = TOOLCHAIN.nvcc.unwrap_or_default();
    let mut now: BTreeMap<String, String> =
        rows().map(|(i, r)| (format!("{} {} {}", i.name, r.entry, r.arch), line(r))).collect();
    if std::env::var_os("WORKBENCH_UPDATE_BUDGETS").is_some() {
        let missing = variants().flat_map(|(_, v)| v.archs).find(|a| !TOOLCHAIN.archs.contains(&a.name()));
        assert_eq!(missing, None, "a snapshot needs every architecture: unset WORKBENCH_ARCHS");
        now.insert("nvcc".into(), version.into());
        std::fs::write(snapshot(), serde_json::to_string_pretty(&now).unwrap() + "\n").unwrap();
        return;
    }
    let text = std::fs::read_to_string(snapshot()).expect("kernels/budgets.json: run `cargo xtask budgets`");
    let mut kept: BTreeMap<String, String> = serde_json::from_str(&text).expect("kernels/budgets.json is JSON");
    let kept_version = kept.remove("nvcc").unwrap_or_default();
    if kept_version != version {
        eprintln!("resources_agree_with_the_snapshot: SKIPPED, nvcc is {version}, the snapshot is of {kept_version}");
        return;
    }
    // A build for some architectures only is held to those.
    kept.retain(|key, _| TOOLCHAIN.archs.contains(&key.rsplit(' ').next().unwrap_or_default()));
    let mut faults = Vec::new();
    for (key, have) in &now {
        match kept.remove(key) {
            None => faults.push(format!("{key}: new, {have}")),
            Some(was) if was != *have => faults.push(format!("{key}: was {was}; is {have}")),
            Some(_) => {}
        }
    }
    faults.extend(kept.keys().map(|key| format!("{key}: gone")));
    assert!(faults.is_empty(), "look at these, then run `cargo xtask budgets`:\n{}", faults.join("\n"));
}

#[test]
fn nothing_spills_without_a_reason() {
    if !compiled("nothing_spills_without_a_reason") {
        return;
    }
    let spilling: Vec<String> = rows()
        .filter(|(i, r)| r.spill_stores + r.spill_loads > 0 && !MAY_SPILL.iter().any(|s| s.allows(i.name, r)))
        .map(|(i, r)| {
            let spills = format!("{} B stored, {} B loaded", r.spill_stores, r.spill_loads);
            format!("{} {} on {}: {} registers, {spills}", i.name, r.entry, r.arch, r.registers)
        })
        .collect();
    assert!(spilling.is_empty(), "spills (list a good reason in MAY_SPILL):\n{}", spilling.join("\n"));
    for s in MAY_SPILL.iter().filter(|s| s.archs.iter().all(|a| TOOLCHAIN.archs.contains(a))) {
        let used = rows().any(|(i, r)| s.allows(i.name, r));
        assert!(used, "MAY_SPILL lists {} {} ({}), which does not spill: take it out", s.image, s.kernel, s.why);
    }
}

#[test]
fn resources_are_within_the_chips_limits() {
    if !compiled("resources_are_within_the_chips_limits") {
        return;
    }
    for (image, r) in rows() {
        assert!(
            r.registers > 0 && r.registers <= 255,
            "{} {} on {}: {} registers",
            image.name,
            r.entry,
            r.arch,
            r.registers
        );
        assert!(r.shared <= STATIC_SHARED, "{} {} on {}: {} B static shared", image.name, r.entry, r.arch, r.shared);
    }
}

/// Largest shared memory of a block after opting in, bytes: CUDA C++ Programming Guide, technical specifications.
fn shared_limit(arch: Arch) -> u32 {
    match arch {
        Arch::Sm80 => 163 << 10,
        Arch::Sm86 | Arch::Sm89 => 99 << 10,
        Arch::Sm90 | Arch::Sm90a => 227 << 10,
    }
}

/// Every launch that an op makes for a chip it supports asks for no more shared memory than the chip has, static and
/// dynamic together, and names a kernel that the image has.
#[test]
fn launches_fit_the_chips_they_are_made_for() {
    use workbench::op::{Bindings, Chip};
    let chips = [
        (Arch::Sm80, Chip { sm: 80, sms: 108, l2_bytes: 40 << 20, shared_optin: 163 << 10 }),
        (Arch::Sm86, Chip { sm: 86, sms: 84, l2_bytes: 6 << 20, shared_optin: 99 << 10 }),
        (Arch::Sm89, Chip { sm: 89, sms: 128, l2_bytes: 72 << 20, shared_optin: 99 << 10 }),
        (Arch::Sm90, Chip::H200),
    ];
    let mut made = 0;
    for op in OPS {
        let shapes = op.edge_shapes().into_iter().chain(op.bench_shapes());
        for shape in shapes {
            // Addresses are never followed here: any aligned number will do.
            let mut at = Bindings::new().with("workspace", 1 << 40);
            for (i, buffer) in op.buffers(&shape, 1).into_iter().flatten().enumerate() {
                at.set(buffer.name, (i as u64 + 1) << 32);
            }
            for variant in op.variants() {
                for (arch, chip) in &chips {
                    let own = variant.archs.iter().find(|a| a.number() == arch.number());
                    let Some(own) = own else { continue };
                    if op.supports(variant.name, &shape, chip).is_err() {
                        continue;
                    }
                    for launch in op.launches(variant.name, &shape, chip, &at).unwrap_or_else(|e| {
                        panic!(
                            "{}/{} supports {shape} on {} and cannot launch it: {e}",
                            op.name(),
                            variant.name,
                            arch.name()
                        )
                    }) {
                        made += 1;
                        let shown = format!("{} {} for {shape} on {}", launch.image, launch.entry, own.name());
                        let image = find(&launch.image).unwrap_or_else(|| panic!("{shown}: no such image"));
                        assert!(launch.block.iter().product::<u32>() <= 1024, "{shown}: block {:?}", launch.block);
                        assert!(launch.shared <= shared_limit(*own), "{shown}: {} B dynamic shared", launch.shared);
                        if image.resources.iter().any(|r| r.arch == own.name()) {
                            let r = image.resources(&launch.entry, own.name());
                            let r = r.unwrap_or_else(|| panic!("{shown}: the image has no such kernel"));
                            let shared = r.shared + launch.shared;
                            assert!(shared <= shared_limit(*own), "{shown}: {shared} B shared");
                            let registers = r.registers.next_multiple_of(8) * launch.block.iter().product::<u32>();
                            assert!(registers <= 65_536, "{shown}: {registers} registers in a block");
                        }
                    }
                }
            }
        }
    }
    assert!(made > 0, "no op made a launch");
}

/// Machine code of an image for 9.0, split by kernel.
fn sass(toolkit: &toolchain::Toolkit, image: &Image) -> BTreeMap<String, String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("image.fatbin");
    std::fs::write(&file, image.fatbin().unwrap().unwrap()).unwrap();
    let arch = image.resources.iter().map(|r| r.arch).rfind(|a| a.starts_with("sm_90")).unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path =
        std::env::join_paths([toolkit.root.join("bin")].into_iter().chain(std::env::split_paths(&path))).unwrap();
    let mut command = Command::new(toolkit.tool("cuobjdump"));
    let output = command.env("PATH", path).args(["-sass", "-arch", arch]).arg(&file).output().unwrap();
    assert!(output.status.success(), "cuobjdump on {}: {}", image.name, String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let kernels = text.split("Function : ").skip(1).filter_map(|part| {
        let (name, body) = part.split_once('\n')?;
        Some((name.trim().to_string(), body.to_string()))
    });
    kernels.collect()
}

#[test]
fn machine_code_has_the_instructions_it_is_there_for() {
    if !compiled("machine_code_has_the_instructions_it_is_there_for") {
        return;
    }
    let project = Path::new(env!("CARGO_MANIFEST_DIR"));
    let Some(toolkit) = toolchain::find("cuobjdump", project).unwrap() else {
        assert!(std::env::var_os("WORKBENCH_REQUIRE_NVCC").is_none(), "no cuobjdump: run `cargo xtask toolchain`");
        eprintln!("machine_code: SKIPPED, there is no cuobjdump (`cargo xtask toolchain` brings it)");
        return;
    };
    let mut faults = Vec::new();
    for name in FACTS.iter().flat_map(|f| f.images).filter(|n| find(n).is_none()) {
        faults.push(format!("FACTS names {name}, which is not registered"));
    }
    for image in IMAGES.iter().filter(|i| i.resources.iter().any(|r| r.arch.starts_with("sm_90"))) {
        let facts: Vec<&Fact> = FACTS.iter().filter(|f| f.images.contains(&image.name)).collect();
        if facts.is_empty() {
            continue;
        }
        for (kernel, code) in sass(&toolkit, image).iter().filter(|(k, _)| !HELPERS.iter().any(|h| k.contains(h))) {
            for fact in facts.iter().filter(|f| f.is_of(kernel) && !f.holds(code)) {
                faults.push(format!("{} {kernel}: no {} ({})", image.name, fact.what, fact.words()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
