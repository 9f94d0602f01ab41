//! Which variant computes a shape, and with how many blocks: the judgement, apart from the launching.

use super::spec::Spec;
use crate::op::{Chip, DType};

/// Query heads of a tensor-core tile and of a CUDA-core block.
pub const TILE_HEADS: u64 = 8;
pub const SIMT_HEADS: u64 = 4;
/// Warps of a block.
pub const STREAM_WARPS: u64 = 4;
pub const CLUSTER_WARPS: u64 = 8;
/// Tokens of a piece where pieces are fixed (`deterministic`).
pub const FIXED_PIECE: u64 = 512;

/// Keys of a warp's tile (Decode::KEYS): as many bytes in either type.
pub const fn keys(kv: DType) -> u64 {
    if matches!(kv, DType::E4m3) { 32 } else { 16 }
}

/// Tiles that a GQA group is cut into.
pub fn head_tiles(spec: &Spec, per_tile: u64) -> u64 {
    spec.kv_heads * spec.group().div_ceil(per_tile)
}

/// The variant to use when nobody names one.
///
/// A cluster joins its pieces in about a microsecond less than a trip through L2 and a counter, but deals each request
/// to equally many blocks whatever its length. It wins where requests are of about one length: a short context in one
/// wave of the chip, where that microsecond counts, or waves that leave no multiprocessor idle (on an H200 32 requests
/// of 2048 tokens, 1.94 waves, take 67 µs instead of 70; lab notes).
pub fn variant(spec: &Spec, chip: &Chip) -> &'static str {
    let (longest, shortest) = (spec.lens.iter().max().unwrap_or(&0), spec.lens.iter().min().unwrap_or(&0));
    let even = longest - shortest <= longest / 16;
    let (blocks, sms) = (spec.batch() * head_tiles(spec, TILE_HEADS) * cluster(spec, chip), u64::from(chip.sms));
    let full = 10 * blocks >= 9 * blocks.next_multiple_of(sms);
    let worth = if blocks <= sms { full || *longest <= 4096 } else { full && blocks <= 2 * sms && *longest <= 4096 };
    if chip.sm >= 90 && !spec.deterministic && even && worth {
        return "split_cluster";
    }
    "split_mma"
}

/// Blocks of a cluster where the shape does not say: the most, up to 8, that are surely one wave of the chip.
///
/// A cluster lives within a processing cluster (GPC) of 16 or 18 multiprocessors: pairs fill those, while of clusters of
/// four and eight not as many fit as the chip has room for. Where 128 blocks were asked for, two waves resulted
/// (2 requests of 2048 tokens: 12.9 µs in clusters of eight, 10.5 in clusters of four; lab notes).
pub fn cluster(spec: &Spec, chip: &Chip) -> u64 {
    let (tiles, sms) = (spec.batch() * head_tiles(spec, TILE_HEADS), u64::from(chip.sms));
    let fits = |c: &u64| tiles * c <= if *c > 2 { sms / 2 } else { sms };
    [8, 4, 2].into_iter().find(fits).unwrap_or(1)
}

/// Ring depth and blocks per multiprocessor of a tensor-core kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    pub stages: u64,
    pub blocks_per_sm: u64,
    /// Dynamic shared memory of a block, bytes.
    pub shared: u64,
}

/// Bytes of a ring stage of `warps` warps: a tile of keys and of values each.
fn stage_bytes(d: u64, kv: DType, warps: u64) -> u64 {
    warps * 2 * keys(kv) * d * kv.size()
}
/// Bytes where `warps` warps exchange their results (Decode::EXCHANGE).
fn exchange_bytes(d: u64, warps: u64) -> u64 {
    (warps * TILE_HEADS * (d + 4) + warps * TILE_HEADS * 2) * 4
}

/// `split_mma`: two blocks on a multiprocessor where three stages of each would fit, else one with all there is. Of two
/// blocks each has a ring of 64 KiB: with more the same bytes came 1.5 % later (64 requests of 8192 tokens on an H200).
/// None where not even one stage fits.
pub fn stream_ring(d: u64, kv: DType, chip: &Chip, stages: u64) -> Option<Ring> {
    const RESERVED: u64 = 1024; // the system's share of each block
    const DEEPEST: u64 = 8;
    const PAIRED: u64 = 64 << 10;
    let (stage, fixed) = (stage_bytes(d, kv, STREAM_WARPS), exchange_bytes(d, STREAM_WARPS) + 16);
    let all = u64::from(chip.shared_optin);
    let fit = |bytes: u64| bytes.saturating_sub(fixed) / stage;
    let pair = fit((all + RESERVED) / 2 - RESERVED);
    let (blocks_per_sm, most) = if pair >= 3 { (2, pair.min(PAIRED / stage).max(2)) } else { (1, fit(all)) };
    let stages = if stages > 0 { stages.min(most) } else { most }.min(DEEPEST);
    (stages > 0).then_some(Ring { stages, blocks_per_sm, shared: stages * stage + fixed })
}

/// `split_cluster`: as deep as a block's share, so that all its loads are in flight at once, if shared memory allows.
pub fn cluster_ring(d: u64, kv: DType, chip: &Chip, tiles: u64) -> Option<Ring> {
    let stage = stage_bytes(d, kv, CLUSTER_WARPS);
    // Prepared queries and new token, and the peers' pieces: a cluster of up to 16 rounds the outputs up by 15.
    let prepared = TILE_HEADS * (2 * d + 16) + 2 * d * kv.size();
    let received = (TILE_HEADS * d / 4 + 15) * 32;
    let tail = prepared + received;
    let most = u64::from(chip.shared_optin).saturating_sub(tail) / stage;
    let stages = tiles.clamp(1, 8).min(most);
    let rings = (stages * stage).max(exchange_bytes(d, CLUSTER_WARPS));
    (stages > 0).then_some(Ring { stages, blocks_per_sm: 1, shared: rings + tail })
}

/// Head tiles that `split_mma`'s neighbouring blocks read side by side: the most, up to 16, that leave no more than a
/// thirtieth of the resident blocks without work.
pub fn side(tiles: u64, resident: u64) -> u64 {
    (1..=16).rev().find(|n| tiles.is_multiple_of(*n) && 30 * (resident % n) <= resident).unwrap_or(1)
}

/// Pieces that `split` cuts every request into: about two blocks for each multiprocessor, none under 128 tokens.
pub fn pieces(spec: &Spec, chip: &Chip) -> u64 {
    let blocks = (spec.batch() * head_tiles(spec, SIMT_HEADS)).max(1);
    (2 * u64::from(chip.sms)).div_ceil(blocks).min(spec.max_ctx.div_ceil(128)).clamp(1, 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Shape;

    fn spec(text: &str) -> Spec {
        Spec::new(&Shape::parse(text).unwrap()).unwrap()
    }

    #[test]
    fn few_requests_take_the_cluster_and_many_the_stream() {
        let chip = Chip::H200;
        assert_eq!(variant(&spec("batch=1,ctx=2048"), &chip), "split_cluster");
        assert_eq!(variant(&spec("batch=2,ctx=4096"), &chip), "split_cluster");
        assert_eq!(variant(&spec("batch=16,ctx=4096"), &chip), "split_cluster");
        assert_eq!(variant(&spec("batch=32,ctx=2048"), &chip), "split_cluster");
        assert_eq!(variant(&spec("batch=24,ctx=2048"), &chip), "split_mma");
        assert_eq!(variant(&spec("batch=64,ctx=8k"), &chip), "split_mma");
        assert_eq!(variant(&spec("lens=128:4096"), &chip), "split_mma");
        assert_eq!(variant(&spec("batch=1,ctx=128k"), &chip), "split_mma");
        assert_eq!(variant(&spec("batch=1,ctx=2048,deterministic=1"), &chip), "split_mma");
        assert_eq!(variant(&spec("batch=1,ctx=2048"), &Chip { sm: 80, ..chip }), "split_mma");
    }

    #[test]
    fn clusters_shrink_until_they_are_one_wave() {
        for (batch, size) in [(1, 8), (2, 4), (3, 2), (4, 2), (8, 2), (16, 1), (64, 1)] {
            assert_eq!(cluster(&spec(&format!("batch={batch},ctx=64")), &Chip::H200), size, "batch {batch}");
        }
    }

    #[test]
    fn rings_fit_the_chips() {
        // H200: two blocks of two stages, 64 KiB in each ring.
        let ring = stream_ring(128, DType::Bf16, &Chip::H200, 0).unwrap();
        assert_eq!((ring.stages, ring.blocks_per_sm), (2, 2));
        assert!(2 * (ring.shared + 1024) <= 228 << 10);
        let small = Chip { sm: 86, sms: 82, l2_bytes: 6 << 20, shared_optin: 101_376 };
        for d in crate::kernels::paged_attention::spec::HEAD_SIZES {
            for kv in [DType::Bf16, DType::E4m3] {
                for chip in [Chip::H200, small] {
                    let ring = stream_ring(d, kv, &chip, 0).unwrap();
                    assert!(ring.shared <= u64::from(chip.shared_optin), "d={d}: {ring:?}");
                }
                let ring = cluster_ring(d, kv, &Chip::H200, 2).unwrap();
                assert!(ring.shared <= u64::from(Chip::H200.shared_optin), "d={d}: {ring:?}");
            }
        }
        assert_eq!(stream_ring(128, DType::Bf16, &Chip { shared_optin: 40_000, ..Chip::H200 }, 0), None);
    }

    #[test]
    fn heads_are_read_side_by_side_where_no_block_is_lost() {
        for (tiles, resident, expected) in
            [(8, 264, 8), (16, 264, 16), (40, 264, 10), (1, 264, 1), (7, 264, 7), (8, 4, 4)]
        {
            let side = side(tiles, resident);
            assert_eq!(side, expected, "{tiles} tiles, {resident} blocks");
        }
    }

    #[test]
    fn the_cuda_core_split_fills_the_chip() {
        let chip = Chip::H200;
        assert_eq!(pieces(&spec("batch=1,ctx=2048"), &chip), 16);
        assert_eq!(pieces(&spec("batch=1,ctx=32k"), &chip), 33);
        assert_eq!(pieces(&spec("batch=64,ctx=8k"), &chip), 1);
    }
}
