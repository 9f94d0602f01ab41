//! When two spellings are one problem: `m=1,n=4k,k=4k` and `k=4096,n=4096,m=1,dtype=bf16` are.

use crate::kernels;
use crate::op::Shape;
use std::collections::BTreeMap;

/// Dimensions that change no work: contents, tolerances, configuration, what only the allocation sees.
const IGNORED: [&str; 9] = ["cfg", "values", "amp", "scale", "k_scale", "v_scale", "eps", "pool_pages", "max_ctx"];

/// What a shape means to its op: every size as a number, every default filled in, equal lengths as a batch.
pub fn meaning(op: &str, shape: &Shape) -> BTreeMap<String, String> {
    let mut full = BTreeMap::new();
    if let Ok(op) = kernels::op(op) {
        let dims = op.dims().iter().filter(|d| !d.default.is_empty() && !d.default.contains('*'));
        full.extend(dims.map(|d| (d.key.to_string(), d.default.to_string())));
    }
    for (key, value) in shape.iter() {
        let size = shape.int_or(key, 0).map_or_else(|_| value.to_string(), |v| v.to_string());
        full.insert(key.into(), size);
    }
    full.retain(|key, _| !IGNORED.contains(&key.as_str()));
    if let Some(lens) = full.get("lens").cloned() {
        let mut each = lens.split(':');
        let first = each.next().unwrap_or_default().to_string();
        if each.all(|l| l == first) {
            full.remove("lens");
            full.insert("batch".into(), lens.split(':').count().to_string());
            full.insert("ctx".into(), first);
        }
    }
    // A default that names another dimension takes its value.
    for key in full.keys().cloned().collect::<Vec<_>>() {
        if let Some(value) = full.get(&full[&key]).cloned() {
            full.insert(key, value);
        }
    }
    if full.get("mask").is_none_or(|m| m == "none") {
        full.remove("mask_rows");
    }
    full
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_and_names_of_dimensions_are_filled_in() {
        let of = |op: &str, text: &str| meaning(op, &Shape::parse(text).unwrap());
        assert_eq!(of("w4a16", "m=1,n=4k,k=4k"), of("w4a16", "k=4096,m=1,n=4096,group=128,zeros=sym,dtype=bf16"));
        assert_eq!(of("matmul", "m=1,n=8,k=8,out=bf16"), of("matmul", "m=1,n=8,k=8"));
        assert_ne!(of("matmul", "m=1,n=8,k=8,out=f32"), of("matmul", "m=1,n=8,k=8"));
        assert_eq!(of("paged_attention", "lens=9:9,kv=bf16"), of("paged_attention", "batch=2,ctx=9"));
        assert_ne!(of("paged_attention", "lens=9:8"), of("paged_attention", "lens=8:9:9"));
    }
}
