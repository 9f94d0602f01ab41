//! The check of `embed`: a copy, so the bits must agree.

use super::Size;
use crate::op::{Check, OpResult, View};

pub fn check(s: &Size, view: &dyn View) -> OpResult<Vec<Check>> {
    let ids = view.read("ids", 0, s.m)?;
    let mut check = Check::compare("out", &[], &[], 0.0);
    for (row, id) in ids.iter().enumerate() {
        let got = view.raw("out", row as u64 * s.k, s.k)?;
        let want = view.raw("table", *id as u64 * s.k, s.k)?;
        check.compared += s.k;
        if got != want && check.broken.is_none() {
            let at = got.iter().zip(&want).position(|(a, b)| a != b).unwrap_or(0) as u64 / s.dtype.size();
            check.broken = Some(format!("row {row} is no copy of table row {id}, from column {at} on"));
        }
    }
    Ok(vec![check])
}
