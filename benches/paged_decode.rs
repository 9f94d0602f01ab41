//! Decode attention over a paged cache: one long request, many requests, ragged lengths.

mod gpu;

use workbench::kernels;
use workbench::run::sweep::Which;

fn main() {
    gpu::main("paged_decode", |session, c| {
        let op = kernels::op("paged_attention")?;
        session.op(c, op, &op.bench_shapes(), &Which::Chosen)
    });
}
