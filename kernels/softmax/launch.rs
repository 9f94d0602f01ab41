//! Launches of `softmax`: the entry's name, the grid, and the same seven arguments for every kernel.

use super::choose::{self, Fused};
use super::{Mask, Size};
use crate::op::{Bindings, Chip, Launch, OpResult};

pub fn launches(variant: &str, s: &Size, chip: &Chip, at: &Bindings) -> OpResult<Vec<Launch>> {
    if s.rows == 0 || s.cols == 0 {
        return Ok(Vec::new());
    }
    let (x, out) = (at.get("x")?, at.get("out")?);
    if x % 16 != out % 16 {
        return Err(crate::op_error!("softmax: x at {x:#x} and out at {out:#x} differ in alignment (modulo 16)"));
    }
    // Variants that keep a row have room for its own vectors; begun between boundaries it would touch one more.
    if choose::whole_vectors(s) && x % 16 != 0 && !matches!(variant, "three_pass" | "online") {
        return Err(crate::op_error!(
            "softmax/{variant}: rows of cols={} are whole 16-byte vectors and must begin on one, x is at {x:#x}: use online",
            s.cols
        ));
    }
    let mask_at = at.maybe("mask").unwrap_or(0);
    if matches!(s.mask, Mask::Bool | Mask::Additive) && !mask_at.is_multiple_of(16) && variant != "three_pass" {
        return Err(crate::op_error!(
            "softmax/{variant}: a mask must begin on 16 bytes, not at {mask_at:#x}: use three_pass"
        ));
    }
    let image = format!("softmax/{variant}");
    let scale2 = (s.scale * std::f64::consts::LOG2_E) as f32;
    if variant == "by_hand" {
        // One vector a thread.
        let threads = choose::vectors(s).next_multiple_of(32);
        let launch = Launch::new(image, "softmax_by_hand_bf16", [s.rows as u32, 1, 1], [threads as u32, 1, 1]);
        return Ok(vec![launch.ptr(x).ptr(out).i32(s.cols as i64).f32(scale2)]);
    }
    let mask = match s.mask {
        Mask::None => "none",
        Mask::Causal => "causal",
        Mask::Bool => "bool",
        Mask::Additive => "additive",
    };
    let entry = format!("softmax_{variant}_{}_{mask}", s.dtype.name());
    let rows = s.rows;
    // Rows of whole vectors on 16-byte boundaries; a mask begins on one.
    let aligned = choose::whole_vectors(s) && x % 16 == 0;
    let fit = if aligned { "aligned" } else { "any" };
    if let ("bulk", Some(b)) = (variant, choose::bulk(s, chip)) {
        let form = if b.most { "most" } else { fit };
        let launch = Launch::new(
            image,
            format!("{entry}_{form}"),
            [(rows * b.blocks) as u32, 1, 1],
            [32 * b.warps as u32, 1, 1],
        )
        .cluster([b.blocks as u32, 1, 1])
        .shared((b.warps * b.each * 16) as u32)
        .programmatic();
        return Ok(vec![arguments(launch, s, at)?.i32(b.each as i64).i32(i64::from(b.once))]);
    }
    let (entry, blocks, threads, cluster) = match variant {
        "fused" => {
            let f = choose::fused(s).expect("`supports` has asked");
            let fit = if aligned && choose::full(s, f) { "full" } else { fit };
            match f {
                Fused::Warp { lanes, vectors, rows: r } => {
                    let warps = choose::warps(vectors);
                    let per_block = warps * (32 / lanes) * r;
                    (format!("{entry}_{fit}_{lanes}x{vectors}x{r}"), rows.div_ceil(per_block), 32 * warps, 1)
                }
                Fused::Block { threads } if choose::four(s) => (format!("{entry}_full_four"), rows, threads, 1),
                Fused::Block { threads } => (format!("{entry}_{fit}_block{}", choose::fused_each(s)), rows, threads, 1),
            }
        }
        "cluster" => {
            let c = choose::cluster(s, chip);
            (format!("{entry}_{}", if c.long { "any_long" } else { fit }), rows * c.blocks, c.threads, c.blocks)
        }
        "online" => (entry, rows, choose::vectors(s).div_ceil(2).next_multiple_of(32).clamp(32, 512), 1),
        _ => (entry, rows, 256, 1),
    };
    let launch =
        Launch::new(image, entry, [blocks as u32, 1, 1], [threads as u32, 1, 1]).cluster([cluster as u32, 1, 1]);
    let launch = if variant == "fused" { launch.programmatic() } else { launch };
    Ok(vec![arguments(launch, s, at)?])
}

/// The seven arguments of SOFTMAX_ARGS.
fn arguments(launch: Launch, s: &Size, at: &Bindings) -> OpResult<Launch> {
    let scale2 = (s.scale * std::f64::consts::LOG2_E) as f32;
    let mask_rows = if s.mask == Mask::None { 0 } else { s.mask_rows };
    Ok(launch
        .ptr(at.get("x")?)
        .ptr(at.get("out")?)
        .ptr(at.maybe("mask").unwrap_or(0))
        .i64(s.rows as i64)
        .i32(s.cols as i64)
        .i32(mask_rows as i64)
        .f32(scale2))
}
