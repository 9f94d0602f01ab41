//! Matrix products: the four weight shapes of a Llama-3-8B layer at one row, and squares, beside the vendor's library.

mod gpu;

use workbench::kernels;
use workbench::op::Shape;
use workbench::run::sweep::Which;

fn main() {
    gpu::main("matmul", |session, c| {
        let product =
            |m: u64, n: u64, k: u64| Shape::new().with("m", m).with("n", n).with("k", k).with("dtype", "bf16");
        let shapes = [
            product(1, 6144, 4096),
            product(1, 4096, 4096),
            product(1, 28672, 4096),
            product(1, 4096, 14336),
            product(4096, 4096, 4096),
            product(8192, 8192, 8192),
        ];
        session.op(c, kernels::op("matmul")?, &shapes, &Which::Chosen)
    });
}
