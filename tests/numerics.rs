//! What docs/numerics.md promises beyond the edge shapes: lengths and page ids that a launch cannot trust, replays with
//! other lengths, offsets beyond 2^31 elements, every width, arrays that begin between boundaries, sizes at the limits;
//! and that the page names only tests and shapes that exist.
//!
//! The emulated kernels come from `cargo xtask emulate`; without them the tests say so and pass, unless
//! WORKBENCH_REQUIRE_EMULATED is set.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use workbench::kernels::paged_attention::spec::Spec;
use workbench::kernels::{self, OPS};
use workbench::op::{Bindings, Buffer, Chip, DType, Init, Launch, Op, OpError, OpResult, Shape, Variant, View};
use workbench::run::arrays::{Arrays, workspace};
use workbench::run::verify::{self, Limits, Outcome};
use workbench::run::{Emulator, Executor, fill};

fn required() -> bool {
    std::env::var_os("WORKBENCH_REQUIRE_EMULATED").is_some()
}

fn emulator() -> Option<Emulator> {
    match Emulator::new(Chip::H200) {
        Ok(e) => Some(e),
        Err(e) if required() => panic!("{e}"),
        Err(e) => {
            eprintln!("SKIPPED: {e}");
            None
        }
    }
}

fn shape(text: &str) -> Shape {
    Shape::parse(text).unwrap()
}

/// The variants of an op that the emulator has and that take a shape.
fn variants(exec: &Emulator, op: &'static dyn Op, shape: &Shape) -> Vec<&'static Variant> {
    let takes = |v: &&Variant| match exec.can_run(op.name(), v) {
        Ok(()) => op.supports(v.name, shape, &exec.chip()).is_ok(),
        Err(e) => {
            assert!(!required(), "{e}");
            eprintln!("SKIPPED {}/{}: {e}", op.name(), v.name);
            false
        }
    };
    op.variants().iter().filter(|v| v.emulated).filter(takes).collect()
}

/// One variant with its arrays and workspace on the emulator.
struct Run {
    op: &'static dyn Op,
    shape: Shape,
    arrays: Arrays,
    scratch: Option<u64>,
    launches: Vec<Launch>,
}

impl Run {
    fn new(exec: &mut Emulator, op: &'static dyn Op, variant: &str, shape: &Shape) -> Self {
        let arrays = Arrays::new(exec, op, shape, 7).unwrap();
        let scratch = workspace(exec, op, variant, shape).unwrap();
        let at = scratch.iter().fold(arrays.bindings().clone(), |at, w| at.with("workspace", *w));
        let launches = op.launches(variant, shape, &exec.chip(), &at).unwrap();
        Self { op, shape: shape.clone(), arrays, scratch, launches }
    }
    fn address(&self, name: &str) -> u64 {
        self.arrays.bindings().get(name).unwrap()
    }
    fn write(&self, exec: &mut Emulator, name: &str, values: &[i32]) {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        exec.write(self.address(name), &bytes).unwrap();
    }
    fn read(&self, exec: &mut Emulator, name: &str) -> Vec<u8> {
        let buffer = self.arrays.buffers().iter().find(|b| b.name == name).unwrap();
        let mut bytes = vec![0; buffer.bytes() as usize];
        exec.read(self.address(name), &mut bytes).unwrap();
        bytes
    }
    /// Outputs poisoned, then one launch; the bytes of `names`.
    fn launch(&self, exec: &mut Emulator, names: &[&str]) -> Vec<Vec<u8>> {
        self.arrays.reset(exec).unwrap();
        exec.launch(&self.launches).unwrap_or_else(|e| panic!("{}: {e}", self.shape));
        names.iter().map(|n| self.read(exec, n)).collect()
    }
    fn check(&self, exec: &mut Emulator, what: &str) {
        for c in self.arrays.check(exec, self.op, &self.shape).unwrap() {
            assert!(c.ok(), "{what} {}: {c:?}", self.shape);
        }
    }
    fn free(self, exec: &mut Emulator) {
        self.scratch.into_iter().for_each(|w| exec.free(w).unwrap());
        self.arrays.free(exec).unwrap();
    }
}

/// Runs `test` on every variant of `op` that takes the shape.
fn each(op: &str, text: &str, mut test: impl FnMut(&mut Emulator, &Run, &str)) {
    let Some(mut exec) = emulator() else { return };
    let (op, shape) = (kernels::op(op).unwrap(), shape(text));
    let all = variants(&exec, op, &shape);
    assert!(!all.is_empty() || !required(), "no variant of {} takes {text}", op.name());
    for v in all {
        let run = Run::new(&mut exec, op, v.name, &shape);
        test(&mut exec, &run, v.name);
        run.free(&mut exec);
    }
}

#[test]
fn lengths_beyond_the_page_table_are_cut() {
    let text = "lens=32:32:32:17,max_ctx=32,page=16,heads=4,kv_heads=1,d=64";
    let lens = [33, 1_000_000, i32::MAX, -5];
    for op_text in ["", ",fuse=rope_append", ",deterministic=1"] {
        each("paged_attention", &format!("{text}{op_text}"), |exec, run, name| {
            run.write(exec, "seq_lens", &lens);
            run.launch(exec, &[]);
            run.check(exec, name);
        });
    }
    each("rope_append", text, |exec, run, name| {
        run.write(exec, "seq_lens", &lens);
        run.launch(exec, &[]);
        run.check(exec, name);
    });
}

#[test]
fn the_last_page_may_reach_beyond_max_ctx() {
    // Six pages of 100 tokens hold 600 where the shape promises 512: a length between the two is within the table.
    let Some(mut exec) = emulator() else { return };
    let op = kernels::op("paged_attention").unwrap();
    for more in ["", ",deterministic=1"] {
        let of = |len: u64| shape(&format!("lens={len},page=100,heads=4,kv_heads=1,d=64{more}"));
        for v in variants(&exec, op, &of(512)) {
            let mut run = Run::new(&mut exec, op, v.name, &of(600));
            let scratch = workspace(&mut exec, op, v.name, &of(512)).unwrap();
            let at = scratch.iter().fold(run.arrays.bindings().clone(), |at, w| at.with("workspace", *w));
            run.launches = op.launches(v.name, &of(512), &Chip::H200, &at).unwrap();
            run.launch(&mut exec, &[]);
            run.check(&mut exec, v.name);
            scratch.into_iter().for_each(|w| exec.free(w).unwrap());
            run.free(&mut exec);
        }
    }
}

#[test]
fn page_ids_outside_the_pool_read_as_zeros() {
    for fuse in ["none", "rope_append"] {
        let text = format!("lens=40:33,page=16,heads=4,kv_heads=1,d=64,max_ctx=48,pool_pages=10,fuse={fuse}");
        each("paged_attention", &text, |exec, run, name| {
            let s = Spec::new(&run.shape).unwrap();
            let table: Vec<i32> =
                run.read(exec, "page_table").chunks(4).map(|c| i32::from_le_bytes(c.try_into().unwrap())).collect();
            // A page in the middle of the first request, and the page that the second one's last token lies in.
            let victims = [1, 5];
            let bytes = s.strides().0 * s.kv.size();
            run.arrays.reset(exec).unwrap();
            for at in victims {
                for cache in ["k_cache", "v_cache"] {
                    let page = run.address(cache) + table[at] as u64 * bytes;
                    exec.fill(page, DType::U8, bytes, &Init::Zero, 0).unwrap();
                }
            }
            let (mut before, mut want) = (Vec::new(), Vec::new());
            for bad in [None, Some(-1), Some(10), Some(i32::MAX), Some(i32::MIN)] {
                let mut ids = table.clone();
                victims.iter().for_each(|at| ids[*at] = bad.unwrap_or(ids[*at]));
                run.write(exec, "page_table", &ids);
                let caches = |exec: &mut Emulator| [run.read(exec, "k_cache"), run.read(exec, "v_cache")];
                before = if bad.is_some() { caches(exec).to_vec() } else { before };
                for (name, dtype) in [("out", s.dtype), ("lse", DType::F32)] {
                    let len = s.batch() * s.heads * if name == "out" { s.d } else { 1 };
                    exec.fill(run.address(name), dtype, len, &Init::Poison, 0).unwrap();
                }
                exec.launch(&run.launches).unwrap_or_else(|e| panic!("{name}, page id {bad:?}: {e}"));
                let got = [run.read(exec, "out"), run.read(exec, "lse")];
                match bad {
                    None => want = got.to_vec(),
                    Some(id) => {
                        assert!(got.as_slice() == want, "{name} fuse={fuse}: page id {id} does not read as zeros");
                        if s.fused {
                            // The first request's new token has its page; what it writes it has written before.
                            assert!(caches(exec).as_slice() == before, "{name}: page id {id} is written through");
                        }
                    }
                }
            }
        });
    }
}

#[test]
fn a_replay_with_other_lengths_is_a_fresh_launch() {
    let Some(mut exec) = emulator() else { return };
    let op = kernels::op("paged_attention").unwrap();
    let full = "lens=700:700:700:700:700,page=16,heads=4,kv_heads=1,d=64";
    for more in ["", ",deterministic=1"] {
        let shape = shape(&format!("{full}{more}"));
        for v in variants(&exec, op, &shape) {
            // One workspace for all lengths, as in a captured graph, against a new one for each.
            let run = Run::new(&mut exec, op, v.name, &shape);
            for lens in [[700, 650, 3, 0, 512], [1, 0, 0, 0, 0], [0, 700, 64, 65, 1], [0; 5], [700, 650, 3, 0, 512]] {
                run.write(&mut exec, "seq_lens", &lens);
                let again = run.launch(&mut exec, &["out", "lse"]);
                run.check(&mut exec, v.name);
                let new = Run::new(&mut exec, op, v.name, &shape);
                new.write(&mut exec, "seq_lens", &lens);
                assert!(new.launch(&mut exec, &["out", "lse"]) == again, "{} {more} {lens:?}", v.name);
                new.free(&mut exec);
            }
            run.free(&mut exec);
        }
    }
}

#[test]
fn deterministic_results_know_neither_the_batch_nor_max_ctx() {
    let Some(mut exec) = emulator() else { return };
    let op = kernels::op("paged_attention").unwrap();
    let rest = "page=16,heads=4,kv_heads=1,d=64,deterministic=1";
    let base = shape(&format!("lens=600,{rest}"));
    for v in variants(&exec, op, &base) {
        let mut result = |text: &str| {
            let run = Run::new(&mut exec, op, v.name, &shape(text));
            let both = run.launch(&mut exec, &["out", "lse"]);
            run.free(&mut exec);
            // The first request's part.
            (both[0][..4 * 64 * 2].to_vec(), both[1][..4 * 4].to_vec())
        };
        let alone = result(&base.to_string());
        for other in ["lens=600,max_ctx=5000", "lens=600:1025:3:0", "lens=600:600,max_ctx=1000"] {
            assert!(result(&format!("{other},{rest}")) == alone, "{} {other}", v.name);
        }
    }
}

/// An op's arrays at addresses of the test's own, read back for the check.
struct Placed<'a> {
    exec: RefCell<&'a mut Emulator>,
    arrays: Vec<(Buffer, u64)>,
}

impl Placed<'_> {
    fn bindings(&self) -> Bindings {
        self.arrays.iter().fold(Bindings::new(), |at, (b, address)| at.with(b.name, *address))
    }
}

impl View for Placed<'_> {
    fn read(&self, name: &str, first: u64, len: u64) -> OpResult<Vec<f64>> {
        let buffer = &self.arrays.iter().find(|(b, _)| b.name == name).unwrap().0;
        let raw = self.raw(name, first, len)?;
        Ok((0..len as usize).map(|i| fill::decode(buffer.dtype, &raw, i)).collect())
    }
    fn raw(&self, name: &str, first: u64, len: u64) -> OpResult<Vec<u8>> {
        let (buffer, address) = self.arrays.iter().find(|(b, _)| b.name == name).unwrap();
        let size = buffer.dtype.size();
        let mut raw = vec![0; (len * size) as usize];
        let read = self.exec.borrow_mut().read(address + first * size, &mut raw);
        read.map(|()| raw).map_err(|e| OpError(e.to_string()))
    }
}

/// Arrays of more than 2^31 elements, of which only the parts that are used are ever touched: the rows `used` of
/// `width` elements of each array in `sparse`.
fn beyond_2_31(op: &str, text: &str, sparse: &[&str], width: u64, used: &[i32], index: &str, rows: &Init) {
    if workbench::run::emulate::folder().ends_with("emulated-asan") {
        return; // The sanitizer's heap is not sparse.
    }
    let Some(mut exec) = emulator() else { return };
    let (op, shape) = (kernels::op(op).unwrap(), shape(text));
    for v in variants(&exec, op, &shape) {
        let mut arrays = Vec::new();
        for b in op.buffers(&shape, 7).unwrap() {
            let address = exec.alloc(b.bytes()).unwrap();
            if sparse.contains(&b.name) {
                assert!(b.len > 1 << 31, "{} of {text}", b.name);
                for id in used {
                    let key = fill::key(u64::from(*id as u32), b.name);
                    let at = address + *id as u64 * width * b.dtype.size();
                    exec.fill(at, b.dtype, width, rows, key).unwrap();
                }
            } else if b.name == index {
                let ids: Vec<u8> = used.iter().cycle().take(b.len as usize).flat_map(|i| i.to_le_bytes()).collect();
                exec.write(address, &ids).unwrap();
            } else {
                exec.fill(address, b.dtype, b.len, &b.init, fill::key(7, b.name)).unwrap();
            }
            arrays.push((b, address));
        }
        let scratch = workspace(&mut exec, op, v.name, &shape).unwrap();
        let placed = Placed { exec: RefCell::new(&mut exec), arrays };
        let at = scratch.iter().fold(placed.bindings(), |at, w| at.with("workspace", *w));
        let launches = op.launches(v.name, &shape, &Chip::H200, &at).unwrap();
        placed.exec.borrow_mut().launch(&launches).unwrap_or_else(|e| panic!("{}/{} {text}: {e}", op.name(), v.name));
        for c in op.check(&shape, &placed).unwrap() {
            assert!(c.ok(), "{}/{} {text}: {c:?}", op.name(), v.name);
        }
        let Placed { arrays, .. } = placed;
        arrays.iter().map(|(_, a)| *a).chain(scratch).for_each(|a| exec.free(a).unwrap());
    }
}

#[test]
fn pages_beyond_2_31_elements_are_found() {
    // 2^31 elements are 131072 pages; the largest id is one below the pool's.
    let used = [139_999, 131_072, 0, 131_071, 139_998, 70_000];
    let pool = "page=16,heads=8,kv_heads=8,pool_pages=140000";
    for (more, rows) in [("", 1.0), (",layout=hnd,fuse=rope_append", 1.0)] {
        let text = format!("lens=40:33,{pool}{more}");
        let rows = Init::Normal { std: rows };
        beyond_2_31("paged_attention", &text, &["k_cache", "v_cache"], 16 * 1024, &used, "page_table", &rows);
    }
    let text = format!("lens=40:33,{pool}");
    beyond_2_31("rope_append", &text, &["k_cache", "v_cache"], 16 * 1024, &used, "page_table", &Init::Poison);
}

#[test]
fn table_rows_beyond_2_31_elements_are_found() {
    let used = [599_999, 524_288, 524_287, 0];
    beyond_2_31("embed", "m=4,v=600000,k=4096", &["table"], 4096, &used, "ids", &Init::Normal { std: 1.0 });
}

/// Widths first, first + 4 … up to 4096 by three variants, three rows each, so that rows of odd width begin anywhere in a vector.
fn widths_of_softmax(first: usize) {
    let Some(mut exec) = emulator() else { return };
    let op = kernels::op("softmax").unwrap();
    for v in op.variants().iter().filter(|v| ["fused", "online", "bulk"].contains(&v.name)) {
        if let Err(e) = exec.can_run("softmax", v) {
            assert!(!required(), "{e}");
            eprintln!("SKIPPED softmax/{}: {e}", v.name);
            continue;
        }
        for cols in (first..=4096).step_by(4) {
            let dtype = ["bf16", "f16", "f32"][cols % 3];
            let shape = shape(&format!("rows=3,cols={cols},dtype={dtype}"));
            let outcome = verify::check(&mut exec, op, v, &shape, cols as u64).unwrap();
            assert!(matches!(outcome, Outcome::Right(_)), "{} {shape}: {outcome:?}", v.name);
        }
    }
}

/// Every width from 1 to 4096, in four tests so that cores share them.
#[test]
fn every_width_of_softmax_1() {
    widths_of_softmax(1);
}
#[test]
fn every_width_of_softmax_2() {
    widths_of_softmax(2);
}
#[test]
fn every_width_of_softmax_3() {
    widths_of_softmax(3);
}
#[test]
fn every_width_of_softmax_4() {
    widths_of_softmax(4);
}

/// Every array of an op moved by some elements from its boundary: the result is right, or the launch is refused.
fn shifted(op: &str, text: &str, shifts: &[(&str, u64)]) {
    let Some(mut exec) = emulator() else { return };
    let (op, shape) = (kernels::op(op).unwrap(), shape(text));
    let mut right = 0;
    for v in variants(&exec, op, &shape) {
        let (mut arrays, mut bases) = (Vec::new(), Vec::new());
        for b in op.buffers(&shape, 7).unwrap() {
            let by = shifts.iter().find(|(name, _)| *name == b.name).map_or(0, |(_, by)| by * b.dtype.size());
            let base = exec.alloc(b.bytes() + by).unwrap();
            exec.fill(base + by, b.dtype, b.len, &b.init, fill::key(7, b.name)).unwrap();
            bases.push(base);
            arrays.push((b, base + by));
        }
        bases.extend(workspace(&mut exec, op, v.name, &shape).unwrap());
        let placed = Placed { exec: RefCell::new(&mut exec), arrays };
        let mut at = placed.bindings();
        if bases.len() > placed.arrays.len() {
            at.set("workspace", bases[bases.len() - 1]);
        }
        match op.launches(v.name, &shape, &Chip::H200, &at) {
            Err(e) => assert!(e.0.contains("16"), "{}/{}: {e}", op.name(), v.name),
            Ok(launches) => {
                let ran = placed.exec.borrow_mut().launch(&launches);
                ran.unwrap_or_else(|e| panic!("{}/{} {text} {shifts:?}: {e}", op.name(), v.name));
                for c in op.check(&shape, &placed).unwrap() {
                    assert!(c.ok(), "{}/{} {text} {shifts:?}: {c:?}", op.name(), v.name);
                }
                right += 1;
            }
        }
        bases.into_iter().for_each(|a| exec.free(a).unwrap());
    }
    assert!(right > 0 || !required(), "{} {text}: nobody takes {shifts:?}", op.name());
}

#[test]
fn arrays_may_begin_between_boundaries() {
    for text in ["rows=5,cols=264", "rows=5,cols=77,dtype=f16", "rows=5,cols=2048,mask=additive,mask_rows=3,dtype=f32"]
    {
        shifted("softmax", text, &[("x", 1), ("out", 1)]);
        shifted("softmax", text, &[("x", 3), ("out", 3), ("mask", 1)]);
        shifted("softmax", text, &[("mask", 1)]);
    }
    shifted("softmax", "rows=5,cols=264,mask=bool,mask_rows=3", &[("mask", 1)]);
    for text in ["m=1,n=64,k=264,post=residual", "m=5,n=66,k=256,post=residual", "m=3,n=34,k=77"] {
        for array in ["x", "w", "out", "residual"] {
            shifted("matmul", text, &[(array, 1)]);
        }
        shifted("matmul", text, &[("x", 1), ("w", 3), ("out", 5), ("residual", 7)]);
    }
}

/// Sizes at and beyond the rules: a variant refuses with numbers, or its launches are ones that CUDA takes.
#[test]
fn sizes_at_the_limits_are_launchable_or_refused() {
    let names = [
        "x",
        "w",
        "out",
        "norm",
        "residual",
        "mask",
        "qweight",
        "scales",
        "zeros",
        "q",
        "qkv",
        "k_cache",
        "v_cache",
        "page_table",
        "seq_lens",
        "lse",
        "cos_sin",
        "gain",
        "ids",
        "table",
        "logits",
        "workspace",
    ];
    let at = names.iter().enumerate().fold(Bindings::new(), |at, (i, n)| at.with(n, (i as u64 + 1) << 44));
    let mut faults = Vec::new();
    let (mut made, mut refused) = (BTreeSet::new(), BTreeSet::new());
    for (op, texts) in [
        (
            "softmax",
            &[
                "rows=2147483647,cols=1",
                "rows=2147483648,cols=1",
                "rows=300000000,cols=8",
                "rows=300000000,cols=3000",
                "rows=1,cols=1073741824",
                "rows=1,cols=2147483647",
                "rows=4096g,cols=1024",
            ][..],
        ),
        (
            "matmul",
            &[
                "m=1073741824,n=8,k=8",
                "m=8,n=1073741824,k=8",
                "m=9000000,n=64,k=64",
                "m=9000000,n=64,k=64,post=residual",
                "m=1073741824,n=1073741824,k=8",
                "m=2147483648,n=8,k=8",
                "m=1,n=8,k=1073741824",
            ],
        ),
        (
            "w4a16",
            &[
                "m=9000000,n=64,k=128",
                "m=1,n=1073741824,k=128",
                "m=1073741824,n=16,k=128",
                "m=1,n=16,k=1073741824",
                "m=16,n=1073741824,k=4096",
                "m=1,n=2147483648,k=128",
            ],
        ),
        (
            "paged_attention",
            &[
                "batch=65535,ctx=1",
                "batch=65536,ctx=1",
                "batch=1,ctx=16777215",
                "batch=1,ctx=16777216",
                "batch=2000,ctx=64,heads=1024,kv_heads=1024,page=1,d=64",
                "batch=33000,ctx=2,heads=256,kv_heads=1,d=256,page=1",
                "batch=33000,ctx=100000,heads=256,kv_heads=1,pool_pages=400000000,d=64",
                "batch=1,ctx=16,pool_pages=2000000",
                "batch=1,ctx=16,pool_pages=3000000",
            ],
        ),
        ("rope_append", &["batch=65535,ctx=1", "batch=2000,ctx=64,heads=1024,kv_heads=1024,page=1,d=64"]),
        ("rmsnorm", &["m=2147483647,k=8", "m=1,k=2147483647", "m=2147483648,k=8"]),
        ("silu_mul", &["m=2147483647,n=8", "m=1,n=2147483647", "m=2147483648,n=8"]),
        ("embed", &["m=2147483647,v=2147483647,k=8", "m=1,v=1,k=2147483647", "m=1,v=2147483648,k=8"]),
        ("argmax", &["m=65535,v=2147483647", "m=65536,v=1", "m=1,v=2147483648"]),
    ] {
        let op = kernels::op(op).unwrap();
        for text in texts {
            for v in op.variants() {
                let case = format!("{}/{} {text}", op.name(), v.name);
                let made_here = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    let launches = op.launches(v.name, &shape(text), &Chip::H200, &at)?;
                    op.workspace(v.name, &shape(text), &Chip::H200).map(|_| launches)
                }));
                let launches = match made_here {
                    Ok(Ok(launches)) => launches,
                    Ok(Err(e)) => {
                        if !e.0.chars().any(|c| c.is_ascii_digit()) {
                            faults.push(format!("{case} is refused without a number: {e}"));
                        }
                        refused.insert(op.name());
                        continue;
                    }
                    Err(_) => {
                        faults.push(format!("{case} panics"));
                        continue;
                    }
                };
                made.insert(op.name());
                for l in launches {
                    let [x, y, z] = l.grid;
                    let fits = (1..=i32::MAX as u32).contains(&x) && [y, z].iter().all(|n| (1..=65_535).contains(n));
                    if !fits || !x.is_multiple_of(l.cluster[0]) {
                        faults.push(format!("{case}: grid {:?} in clusters of {:?}", l.grid, l.cluster));
                    }
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert_eq!(made.len(), OPS.len(), "launched only {made:?}");
    assert!(refused.len() + 1 >= OPS.len(), "refused only {refused:?}");
}

#[test]
fn a_workspace_does_not_grow_with_the_context() {
    let op = kernels::op("paged_attention").unwrap();
    let bytes = |v: &str, text: &str| op.workspace(v, &shape(text), &Chip::H200).unwrap();
    let (short, long) = ("batch=64,ctx=8192", "batch=64,ctx=8192,max_ctx=131072,pool_pages=40000");
    // Pieces are bounded by the blocks that are resident, whatever length a replay may have.
    assert_eq!(bytes("split_mma", short), bytes("split_mma", long));
    assert_eq!(bytes("split", short), bytes("split", long));
    // A run's first and last piece, eight heads of 128 sums with maximum and sum each; blocks may have several runs.
    let (resident, runs) = (2 * 132, 9);
    assert!(bytes("split_mma", long) <= 2 * runs * resident * (8 * 128 + 16) * 4 + (64 * 8 + 4) * 4);
    assert_eq!(bytes("one_pass", long), 0);
    assert_eq!(bytes("split_mma", "batch=0,ctx=16"), 0);
}

/// The rows of docs/numerics.md: number, and the code spans of its last column with `(large)` where it follows.
fn page() -> Vec<(u32, Vec<(String, bool)>)> {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/numerics.md")).unwrap();
    let mut rows = Vec::new();
    for line in text.lines().filter(|l| l.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let Ok(number) = cells[0].parse() else { continue };
        assert_eq!(cells.len(), 4, "{line}");
        let spans: Vec<&str> = cells[3].split('`').collect();
        let held = spans.chunks(2).filter(|c| c.len() == 2);
        let large = spans.iter().skip(2).step_by(2).map(|rest| rest.starts_with(" (large)"));
        rows.push((number, held.map(|c| c[1].to_string()).zip(large).collect()));
    }
    rows
}

#[test]
fn the_page_names_what_exists() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR"));
    let rows = page();
    assert_eq!(rows.iter().map(|r| r.0).collect::<Vec<_>>(), (1..=45).collect::<Vec<_>>());
    let mut faults = Vec::new();
    for (number, held) in rows {
        if held.is_empty() {
            faults.push(format!("case {number} is held by nothing"));
        }
        for (name, large) in held {
            if let Some((file, function)) = name.split_once("::") {
                let text = std::fs::read_to_string(project.join(file)).unwrap_or_default();
                // In a file of tests, or in a module of them.
                if !["", "    "].iter().any(|by| text.contains(&format!("#[test]\n{by}fn {function}()"))) {
                    faults.push(format!("case {number}: {file} has no test {function}"));
                }
                continue;
            }
            let Some((op, text)) = name.split_once(' ') else {
                faults.push(format!("case {number}: `{name}` is neither FILE::TEST nor OP SHAPE"));
                continue;
            };
            let (op, wanted) = (kernels::op(op).unwrap(), shape(text));
            // Edges beyond the emulator's limits would run on a card only.
            let list = if large { op.large_shapes() } else { verify::shapes(op, true, 0, 1, Limits::EMULATOR).0 };
            if !list.contains(&wanted) {
                faults.push(format!("case {number}: {} has no such shape for the emulator: {text}", op.name()));
            }
            if let Err(e) = op.supports(op.choose(&wanted, &Chip::H200), &wanted, &Chip::H200) {
                faults.push(format!("case {number}: {e}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
