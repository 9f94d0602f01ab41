//! The pure side: shape rules, cost, and what the heuristic picks.

use super::choose::{self, GEMV, GEMV_ASYNC, GEMV_BULK, MMA};
use super::problem::Problem;
use super::*;

fn problem(text: &str) -> Problem {
    Problem::of(&Shape::parse(text).unwrap()).unwrap()
}
fn refused(text: &str) -> String {
    Problem::of(&Shape::parse(text).unwrap()).unwrap_err().0
}

/// GeForce RTX 3090: 99 KB of shared memory to a block.
const SM86: Chip = Chip { sm: 86, sms: 82, l2_bytes: 6 << 20, shared_optin: 101_376 };

#[test]
fn shapes_are_checked() {
    assert!(refused("m=1,n=4,k=0").contains("k=0"));
    assert!(refused("m=1,n=5,k=8,post=silu_mul").contains("n=5"));
    assert!(refused("m=1,n=5,k=8,dtype=f32").contains("bf16 or f16"));
    assert!(refused("m=1,n=5,k=8,dtype=f16,out=bf16").contains("f32"));
    assert!(refused("m=1,n=5g,k=8").contains("2^30"));
    assert!(refused("m=1,k=8").contains("lacks `n`"));
}

#[test]
fn cost_counts_each_array_once() {
    let c = problem("m=2,n=8,k=16,pre=rmsnorm,post=residual,out=f32").cost();
    let sizes: Vec<_> = c.terms.iter().map(|t| (t.name, t.bytes)).collect();
    assert_eq!(sizes, [("weights", 256), ("x", 64), ("norm", 32), ("residual", 32), ("out", 64)]);
    assert_eq!(c.flops, 2 * 2 * 8 * 16);
    assert_eq!(problem("m=1,n=8,k=16,post=silu_mul").cost().bytes(), 256 + 32 + 8);
    assert_eq!(problem("m=0,n=8,k=16").cost().bytes(), 0);
}

#[test]
fn decode_shapes_share_an_sm_with_the_next_kernel() {
    for (n, k) in shapes::LLAMA_3_8B {
        for m in [1, 2] {
            let p = problem(&format!("m={m},n={n},k={k}"));
            assert_eq!(choose::variant(&p, &Chip::H200), if m > 1 { "swap_ab" } else { "gemv_async" });
            for (name, table) in [("gemv", GEMV), ("gemv_async", GEMV_ASYNC), ("gemv_bulk", GEMV_BULK)] {
                let c = choose::gemv_config(table, name, &p, &Chip::H200).unwrap();
                assert_eq!(c.m, m);
                assert_eq!(c.blocks(&p, &Chip::H200), 132 * c.per_sm, "{name} {n}x{k}");
                assert!(c.pairs_up(&p, &Chip::H200), "{name} m={m} {n}x{k}");
            }
            let expected = if m == 2 && k == 14336 { "gemv" } else { "gemv_async" };
            assert_eq!(choose::variant(&p, &SM86), expected, "m={m} {n}x{k}");
        }
    }
}

#[test]
fn few_weights_take_short_rings() {
    for (text, depth, per_sm) in [
        ("m=1,n=4096,k=4096,post=residual", 3, 3),
        ("m=1,n=6144,k=4096,pre=rmsnorm", 3, 3),
        ("m=1,n=28672,k=4096,post=silu_mul", 5, 2),
        ("m=1,n=4096,k=14336", 5, 2),
        ("m=1,n=128256,k=4096", 5, 2),
    ] {
        let p = problem(text);
        let c = choose::gemv_config(GEMV_ASYNC, "gemv_async", &p, &Chip::H200).unwrap();
        assert_eq!((c.depth, c.per_sm), (depth, per_sm), "{text}");
    }
}

#[test]
fn configurations_are_picked_by_number() {
    let p = problem("m=1,n=4096,k=4096,cfg=2");
    assert_eq!(
        choose::gemv_config(GEMV_BULK, "gemv_bulk", &p, &Chip::H200).unwrap().entry("gemv_bulk", &p),
        "matmul_gemv_bulk_bf16_m1_r2u2d3w16"
    );
    assert_eq!(GEMV[0].entry("gemv", &p), "matmul_gemv_bf16_m1_r2u4w8");
    let far = problem("m=1,n=4096,k=4096,cfg=99");
    assert!(choose::gemv_config(GEMV, "gemv", &far, &Chip::H200).unwrap_err().0.contains("0 to"));
    let wide = problem("m=2,n=4096,k=4096,cfg=0");
    assert!(choose::gemv_config(GEMV, "gemv", &wide, &Chip::H200).unwrap_err().0.contains("m up to 1"));
}

#[test]
fn a_batch_is_streamed_past_the_tensor_cores() {
    for (m, tile) in [(3, 8), (8, 8), (9, 16), (32, 32), (33, 64), (128, 128)] {
        let p = problem(&format!("m={m},n=4096,k=4096"));
        let c = choose::streamk_config(choose::SKINNY, "skinny", &p, &SM86).unwrap();
        assert_eq!((c.m, c.tiles(&p), c.units(&p), c.blocks(&p, &SM86)), (tile, 32, 32 * 64, 82));
        assert!(c.shared() + 1024 <= u64::from(SM86.shared_optin));
        assert!(c.workspace(&p, &SM86) >= 82 * 2 * 128 * tile * 4 + 32 * 2 * 4);
    }
    let p = problem("m=200,n=4096,k=4096");
    assert_eq!(choose::variant(&p, &Chip::H200), "wgmma_cluster");
    for (shape, h200, sm86) in [
        ("m=4,n=4096,k=4096,pre=rmsnorm", "gemv_async", "gemv"),
        ("m=64,n=4096,k=4100", "skinny", "skinny"),
        ("m=256,n=28672,k=4096", "wgmma_cluster", "mma"),
        ("m=256,n=28672,k=4096,post=silu_mul", "swap_ab", "mma"),
        ("m=256,n=4096,k=14336", "wgmma_cluster", "mma"),
        ("m=256,n=1024,k=16384", "wgmma_cluster", "mma"),
        ("m=128,n=6144,k=4096", "wgmma_cluster", "skinny"),
        ("m=128,n=6144,k=4096,post=residual", "swap_ab", "skinny"),
        ("m=128,n=128256,k=4096", "wgmma_cluster", "skinny"),
        ("m=128,n=4096,k=4096", "swap_ab", "skinny"),
        ("m=8192,n=8192,k=8192", "wgmma_cluster", "mma"),
        ("m=8192,n=8192,k=8191", "mma", "mma"),
    ] {
        assert_eq!(choose::variant(&problem(shape), &Chip::H200), h200, "{shape}");
        assert_eq!(choose::variant(&problem(shape), &SM86), sm86, "{shape}");
    }
}

#[test]
fn too_much_x_is_a_typed_error() {
    let p = problem("m=8,n=4096,k=16384");
    assert!(choose::gemv_config(GEMV, "gemv", &p, &Chip::H200).unwrap_err().0.contains("shared memory"));
    let p = problem("m=9,n=4096,k=64");
    assert!(choose::gemv_config(GEMV, "gemv", &p, &Chip::H200).unwrap_err().0.contains("m=9"));
}

#[test]
fn tiles_fit_the_chip() {
    let square = problem("m=8192,n=8192,k=8192");
    assert_eq!(*choose::mma_tile(&square, &Chip::H200).unwrap(), MMA[0]);
    let tile = choose::mma_tile(&square, &SM86).unwrap();
    assert_eq!((tile.m, tile.n, tile.shared()), (128, 128, 98_304));
    assert!(choose::mma_tile(&problem("m=16,n=4096,k=64"), &Chip::H200).unwrap().m == 64);
    assert_eq!(MMA[2].count(&problem("m=130,n=258,k=8")), 2 * 3);
    assert_eq!(MMA[2].count(&problem("m=130,n=258,k=8,post=silu_mul")), 2 * 3);
}

#[test]
fn swapped_operands_give_every_sm_the_same_share() {
    for (n, k) in shapes::LLAMA_3_8B {
        for m in [2, 4, 8, 16, 32, 64] {
            for post in if n == 28672 { &["none", "silu_mul"][..] } else { &["none"] } {
                let p = problem(&format!("m={m},n={n},k={k},post={post}"));
                assert_eq!(choose::variant(&p, &Chip::H200), "swap_ab");
                let c = choose::swap_ab_config(&p, &Chip::H200).unwrap();
                let cut = c.cut(&p, &Chip::H200);
                assert!(c.m >= m && cut.stages >= 2, "{p:?}: {c:?} {cut:?}");
                // Rows of w, of which every block would have the same.
                let blocks = 132 * c.resident;
                let rows = cut.tiles.div_ceil(blocks / c.split) * cut.rows;
                assert!((rows * blocks) as f64 <= 1.08 * (n * c.split) as f64, "{p:?}: {c:?} {cut:?}");
                assert!(cut.shared + 2048 <= u64::from(Chip::H200.shared_optin));
                // No room for a block more, whatever the kernel ahead leaves.
                let full = (c.per_sm + 1) * cut.shared > 228 * 1024;
                assert!(c.per_sm == c.resident && full, "{p:?}: {c:?} {cut:?}");
            }
        }
    }
    assert!(
        Matmul
            .supports("swap_ab", &Shape::parse("m=8,n=64,k=100").unwrap(), &Chip::H200)
            .unwrap_err()
            .0
            .contains("mma")
    );
    let far = Shape::parse("m=8,n=64,k=128,cfg=80").unwrap();
    assert!(Matmul.supports("swap_ab", &far, &Chip::H200).unwrap_err().0.contains("3122120"));
}

#[test]
fn cuts_are_named_by_digits() {
    use choose::SwapAb;
    let c = SwapAb::numbered(3_212_412).unwrap();
    assert_eq!((c.m, c.operands, c.consumers, c.depth), (32, 1, 2, 1));
    assert_eq!((c.split, c.share, c.per_sm), (2, 4, 1));
    assert_eq!((c.turn, c.once, c.early), (false, true, false));
    let four = SwapAb::numbered(5_411_217).unwrap();
    assert_eq!((four.operands, four.consumers, four.cluster()), (2, 2, 2));
    let own: Vec<_> = (1..=5).map(|room| SwapAb::numbered(1_122_104 + room * 10).unwrap()).collect();
    assert_eq!(own.iter().map(|c| c.per_sm).collect::<Vec<_>>(), [1, 2, 2, 3, 4]);
    assert_eq!(own.iter().map(|c| c.resident).collect::<Vec<_>>(), [1, 1, 2, 3, 4]);
    // No such width; 8 rows in two halves; clusters of 16; no such kernel; no depth; no blocks.
    for none in [0, 7_111_110, 1_111_210, 4_114_410, 6_411_110, 3_101_110, 3_111_160, 31_111_110] {
        assert_eq!(SwapAb::numbered(none), None, "{none}");
    }
    // Blocks that share x have tiles of their own, and those that share k a part of it each.
    let p = problem("m=128,n=4096,k=4096");
    let cut = SwapAb::numbered(5_314_110).unwrap().cut(&p, &Chip::H200);
    assert_eq!((cut.cols, cut.pitch, cut.tiles, cut.blocks, cut.drained), (144, 48, 29, 116, true));
    let cut = SwapAb::numbered(1_142_134).unwrap().cut(&problem("m=8,n=4096,k=4096"), &Chip::H200);
    assert_eq!((cut.cols, cut.tiles, cut.blocks), (32, 128, 256));
    let cut = SwapAb::numbered(5_211_410).unwrap().cut(&problem("m=128,n=1000,k=4096"), &Chip::H200);
    assert_eq!((cut.tiles % 4, cut.blocks % 4), (0, 0));
}

#[test]
fn tensor_copies_name_their_stride_rule() {
    let odd = problem("m=256,n=256,k=100");
    let text = choose::copyable_rows("wgmma", &odd).unwrap_err().0;
    assert!(text.contains("k=100") && text.contains("200 bytes") && text.contains("multiples of 16"), "{text}");
    let square = problem("m=8192,n=8192,k=8192");
    let tile = choose::wgmma_tile(&square, &Chip::H200).unwrap();
    assert_eq!((tile.n, tile.shared()), (256, 196_608));
    assert_eq!(choose::wgmma_tile(&problem("m=128,n=8192,k=64"), &Chip::H200).unwrap().n, 128);
    let at = Bindings::new().with("x", 256).with("w", 512).with("out", 1024);
    let s = Shape::parse("m=8192,n=8192,k=8192").unwrap();
    let launch = &Matmul.launches("wgmma", &s, &Chip::H200, &at).unwrap()[0];
    assert_eq!((launch.grid, launch.block[0], launch.args.len()), ([132, 1, 1], 384, 15));
    let launch = &Matmul.launches("wgmma_cluster", &s, &Chip::H200, &at).unwrap()[0];
    assert_eq!((launch.grid, launch.cluster, launch.args.len()), ([132, 1, 1], [2, 1, 1], 17));
    assert!(u64::from(launch.shared) + 1024 <= u64::from(Chip::H200.shared_optin));
    let at = at.with("w", 520);
    assert!(Matmul.launches("wgmma", &s, &Chip::H200, &at).unwrap_err().0.contains("16 bytes"));
}

#[test]
fn clusters_of_two_have_the_tile_that_fills_the_chip() {
    for (shape, m, n, shares_x, blocks) in [
        ("m=128,n=6144,k=4096", 64, 96, false, 128),
        ("m=256,n=6144,k=4096", 128, 96, false, 128),
        ("m=256,n=4096,k=4096", 64, 128, false, 128),
        ("m=256,n=28672,k=4096", 128, 256, false, 132),
        ("m=128,n=128256,k=4096", 128, 256, true, 132),
    ] {
        let c = choose::cluster_tile(&problem(shape), &Chip::H200).unwrap();
        assert_eq!((c.tile.m, c.tile.n, c.shares_x), (m, n, shares_x), "{shape}");
        let at = Bindings::new().with("x", 256).with("w", 512).with("out", 1024);
        let s = Shape::parse(shape).unwrap();
        let launch = &Matmul.launches("wgmma_cluster", &s, &Chip::H200, &at).unwrap()[0];
        assert_eq!((launch.grid[0], launch.block[0]), (blocks, 128 + 2 * m as u32), "{shape}");
        assert!(u64::from(launch.shared) + 1024 <= u64::from(Chip::H200.shared_optin), "{shape}");
    }
}

#[test]
fn the_norm_is_refused_where_no_kernel_folds_it() {
    let s = Shape::parse("m=32,n=4096,k=4096,pre=rmsnorm").unwrap();
    Matmul.supports("swap_ab", &s, &Chip::H200).unwrap();
    assert!(Matmul.supports(Matmul.choose(&s, &Chip::H200), &s, &Chip::H200).is_err());
    let s = Shape::parse("m=32,n=4096,k=4096,pre=rmsnorm,post=residual").unwrap();
    let chosen = Matmul.choose(&s, &Chip::H200);
    assert!(Matmul.supports(chosen, &s, &Chip::H200).unwrap_err().0.contains("rmsnorm"));
    assert!(Matmul.supports("naive", &s, &Chip::H200).is_ok());
    let s = Shape::parse("m=1,n=4096,k=4096").unwrap();
    assert!(Matmul.supports("gemv_bulk", &s, &SM86).unwrap_err().0.contains("9.0"));
}

#[test]
fn every_listed_shape_has_a_variant() {
    let mut rng = Rng(1);
    let random = (0..500).map(|_| Matmul.random_shape(&mut rng));
    for s in Matmul.edge_shapes().into_iter().chain(Matmul.bench_shapes()).chain(random) {
        for chip in [Chip::H200, SM86] {
            let v = Matmul.choose(&s, &chip);
            if !s.to_string().contains("rmsnorm") {
                Matmul.supports(v, &s, &chip).unwrap_or_else(|e| panic!("{s}: {e}"));
            }
        }
        Matmul.supports("naive", &s, &Chip::H200).unwrap();
    }
}

#[test]
fn an_empty_problem_launches_nothing() {
    let s = Shape::parse("m=0,n=8,k=8").unwrap();
    assert!(Matmul.launches("naive", &s, &Chip::H200, &Bindings::new()).unwrap().is_empty());
    let s = Shape::parse("m=1,n=8,k=8").unwrap();
    assert!(Matmul.launches("naive", &s, &Chip::H200, &Bindings::new()).unwrap_err().0.contains("`x`"));
}
