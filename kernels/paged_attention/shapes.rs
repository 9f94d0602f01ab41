//! The dimensions of a shape, and the shapes that tests and benches run.

use super::spec;
use crate::op::{Dim, Rng, Shape};

pub const DIMS: &[Dim] = &[
    Dim { key: "batch", default: "", about: "requests (or give lens)" },
    Dim { key: "ctx", default: "", about: "tokens of every request, the new one included when fused" },
    Dim { key: "lens", default: "", about: "tokens of each request, a:b:c" },
    Dim { key: "heads", default: "32", about: "query heads" },
    Dim { key: "kv_heads", default: "8", about: "key and value heads" },
    Dim { key: "d", default: "128", about: "head size: 64, 96, 128, 192 or 256" },
    Dim { key: "page", default: "16", about: "tokens of a page, 1 to 256" },
    Dim { key: "dtype", default: "bf16", about: "bf16 or f16" },
    Dim { key: "kv", default: "dtype", about: "type of the cache: dtype or e4m3" },
    Dim { key: "layout", default: "nhd", about: "nhd or hnd" },
    Dim { key: "fuse", default: "none", about: "none or rope_append" },
    Dim { key: "max_ctx", default: "longest", about: "longest length a replay may have" },
    Dim { key: "pool_pages", default: "batch * max_pages", about: "pages in the cache" },
    Dim { key: "k_scale", default: "1", about: "keys are cached as k / k_scale (e4m3)" },
    Dim { key: "v_scale", default: "1", about: "values are cached as v / v_scale (e4m3)" },
    Dim { key: "scale", default: "1/sqrt(d)", about: "softmax scale" },
    Dim { key: "deterministic", default: "0", about: "1: pieces of 512 tokens, results independent of the batch" },
    Dim { key: "cluster", default: "by batch", about: "blocks of a cluster, 1 to 16 (split_cluster)" },
    Dim {
        key: "side",
        default: "by heads",
        about: "head tiles that neighbouring blocks read side by side (split_mma)",
    },
    Dim { key: "stages", default: "0", about: "depth of the ring, 0 for as deep as fits (split_mma)" },
];

/// The contract's edges: lengths 0 and 1, page boundaries, page sizes, groups, head sizes, layouts, scales, batch 0.
pub const EDGES: &[&str] = &[
    "lens=0",
    "lens=0:0:0,fuse=rope_append",
    "batch=0,ctx=16",
    "lens=1",
    "lens=1:0:2:16:17:15:64:65,heads=8,kv_heads=2,fuse=rope_append",
    "lens=1:0:2:16:17:15:64:65,heads=8,kv_heads=2,deterministic=1",
    "lens=127:128:129:1:0:511:512:513:1025,page=64,heads=4,kv_heads=1,d=64",
    "lens=127:128:129:1:0:511:512:513:1025,page=64,heads=4,kv_heads=1,d=64,deterministic=1,fuse=rope_append",
    "lens=33:100,page=1,heads=8,kv_heads=2",
    "lens=300:513:7,page=256,heads=8,kv_heads=2",
    "lens=200:128:129:0,page=128,heads=4,kv_heads=1,d=64",
    "lens=31:32:33:64,page=32,heads=4,kv_heads=1,d=64,fuse=rope_append",
    // Scores far below any finite stand-in for -inf: half of the heads see nothing else.
    "lens=1:1:2:0,heads=8,kv_heads=2,scale=5000",
    "lens=200:77,page=3,layout=hnd,heads=8,kv_heads=2,fuse=rope_append",
    "batch=2,ctx=300,heads=5,kv_heads=1",
    "batch=2,ctx=300,heads=6,kv_heads=1,fuse=rope_append",
    "batch=2,ctx=300,heads=14,kv_heads=2,d=64",
    "batch=2,ctx=150,heads=16,kv_heads=1,fuse=rope_append",
    "batch=2,ctx=300,heads=9,kv_heads=1,d=64",
    "batch=2,ctx=300,heads=4,kv_heads=4,d=96",
    "batch=2,ctx=200,heads=4,kv_heads=2,d=192,fuse=rope_append",
    "batch=2,ctx=200,heads=4,kv_heads=2,d=256",
    "batch=2,ctx=300,heads=8,kv_heads=2,d=64,dtype=f16,fuse=rope_append",
    "batch=2,ctx=300,heads=8,kv_heads=2,kv=e4m3,k_scale=0.5,v_scale=1.75",
    "batch=2,ctx=300,heads=8,kv_heads=2,kv=e4m3,k_scale=0.5,v_scale=1.75,fuse=rope_append,layout=hnd",
    "batch=2,ctx=300,kv=e4m3,d=96,heads=6,kv_heads=2,dtype=f16,k_scale=1.25,v_scale=0.3",
    "batch=2,ctx=300,kv=e4m3,d=64,heads=6,kv_heads=2,dtype=f16,k_scale=1.25,v_scale=0.3",
    "batch=2,ctx=200,kv=e4m3,d=192,heads=6,kv_heads=2,k_scale=1.25,v_scale=0.3",
    "batch=2,ctx=200,kv=e4m3,d=256,heads=6,kv_heads=2,k_scale=1.25,v_scale=0.3,fuse=rope_append",
    "batch=1,ctx=1000,heads=8,kv_heads=2,fuse=rope_append",
    "batch=1,ctx=1025,heads=4,kv_heads=1,max_ctx=4096",
    "batch=3,ctx=17,heads=8,kv_heads=2,scale=0.5",
    "lens=3:1000:20:1:900,max_ctx=5000,heads=4,kv_heads=1,d=64",
    "lens=3:1000:0:20:900,heads=12,kv_heads=6,d=64,side=3,fuse=rope_append",
    "lens=3:1000:0:20:900,heads=12,kv_heads=6,d=64,side=1",
    "batch=1,ctx=2048,fuse=rope_append",
    "batch=2,ctx=2049,max_ctx=4096",
];

/// A random shape of a few hundred tokens: any group, page, head size, layout and cache type.
pub fn random(rng: &mut Rng) -> Shape {
    let kv_heads = *rng.pick(&[1, 2, 4, 8]);
    let group = *rng.pick(&[1, 2, 3, 4, 5, 6, 7, 8, 12, 16]);
    let page = *rng.pick(&[1, 2, 3, 5, 8, 16, 32, 64, 100, 128, 256]);
    let batch = rng.range(1, 6);
    let lens: Vec<String> = (0..batch)
        .map(|_| {
            let top = *rng.pick(&[1, 20, 130, 700, 1500]);
            rng.range(0, top).to_string()
        })
        .collect();
    let longest = lens.iter().filter_map(|l| l.parse::<u64>().ok()).max().unwrap_or(0);
    let mut shape = Shape::new()
        .with("lens", lens.join(":"))
        .with("heads", kv_heads * group)
        .with("kv_heads", kv_heads)
        .with("d", *rng.pick(&spec::HEAD_SIZES))
        .with("page", page)
        .with("dtype", *rng.pick(&["bf16", "f16"]))
        .with("layout", *rng.pick(&["nhd", "hnd"]))
        .with("fuse", *rng.pick(&["none", "rope_append"]))
        .with("max_ctx", longest.max(1) + rng.range(0, 300));
    if rng.range(0, 2) == 0 {
        shape = shape.with("kv", "e4m3").with("k_scale", "0.75").with("v_scale", "1.5");
    }
    if rng.range(0, 4) == 0 {
        shape = shape.with("deterministic", 1);
    }
    shape
}

/// Pools of more than 2^31 elements, with page ids up to their end: 9.2 GB of caches each; queries and outputs of more
/// than 2^31 elements, 4.3 GB each.
pub fn large() -> Vec<Shape> {
    let shape = Shape::new().with("batch", 4).with("ctx", 1000).with("page", 16).with("pool_pages", 140_000);
    let wide = Shape::new().with("batch", 33_000).with("ctx", 2).with("heads", 256).with("kv_heads", 1).with("d", 256);
    vec![shape.clone().with("fuse", "rope_append"), shape.with("layout", "hnd"), wide.with("page", 1)]
}

/// The shapes of the published comparisons, the fused step, a group of 8 and an e4m3 cache.
pub fn bench() -> Vec<Shape> {
    let mut shapes = Vec::new();
    for (batch, ctx) in [(1u64, 2048u64), (1, 32768), (1, 131_072), (16, 4096), (64, 8192), (256, 2048)] {
        shapes.push(Shape::new().with("batch", batch).with("ctx", ctx));
    }
    shapes.push(Shape::new().with("batch", 1).with("ctx", 2048).with("fuse", "rope_append"));
    shapes.push(ragged());
    shapes.push(Shape::new().with("batch", 64).with("ctx", 8192).with("heads", 64));
    let fp8 = Shape::new().with("batch", 64).with("ctx", 8192).with("kv", "e4m3");
    shapes.push(fp8.with("k_scale", "0.75").with("v_scale", "1.5"));
    shapes
}

/// 64 requests of 128 to 32768 tokens, their logarithms uniform: the lengths that peers/paged_decode.py draws.
const RAGGED: &str = "\
    771:295:4729:191:2498:972:176:2134:157:1417:188:211:1347:12544:254:441:4151:24520:3140:1154:28725:\
    165:14948:637:284:245:708:11820:348:3219:4424:1009:2668:181:178:401:5568:1370:730:3291:1579:674:\
    10477:6173:495:3094:2355:16396:7309:631:29356:246:1300:8522:297:1926:159:5205:8881:3070:16427:729:\
    6048:3456";

fn ragged() -> Shape {
    let pages: u64 = RAGGED.split(':').filter_map(|l| l.parse::<u64>().ok()).map(|l| l.div_ceil(16)).sum();
    Shape::new().with("lens", RAGGED).with("page", 16).with("pool_pages", pages)
}
