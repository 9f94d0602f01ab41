//! Products with 4-bit weights at one row: a quarter of the bytes of bf16, if unpacking them costs nothing.

mod gpu;

use workbench::kernels;
use workbench::run::sweep::Which;

fn main() {
    gpu::main("w4a16_gemv", |session, c| {
        let op = kernels::op("w4a16")?;
        let shapes: Vec<_> = op.bench_shapes().into_iter().filter(|s| s.int_or("m", 1).is_ok_and(|m| m == 1)).collect();
        session.op(c, op, &shapes, &Which::All)
    });
}
