//! How many blocks share a row, and which variant that makes.

use super::Size;
use crate::op::Chip;

pub const THREADS: u64 = 256;

/// Blocks for each row: one 16-byte vector a thread at most, and no more blocks in all than two for each
/// multiprocessor, because each pays an atomic at the end.
pub fn splits(s: &Size, chip: &Chip) -> u64 {
    let lanes = 16 / s.dtype.size();
    let by_width = s.v.div_ceil(lanes * THREADS);
    let by_chip = (2 * u64::from(chip.sms)).div_ceil(s.m.max(1));
    by_width.min(by_chip).max(1)
}

/// A row that one block reads in a few steps needs no combining.
pub fn choose(s: &Size, chip: &Chip) -> &'static str {
    if splits(s, chip) <= 2 { "block" } else { "split" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Shape;

    #[test]
    fn one_row_takes_the_chip() {
        let of = |t: &str| Size::of(&Shape::parse(t).unwrap()).unwrap();
        assert_eq!(splits(&of("m=1,v=128256"), &Chip::H200), 126);
        assert_eq!(splits(&of("m=64,v=128256"), &Chip::H200), 5);
        assert_eq!(choose(&of("m=1,v=128256"), &Chip::H200), "split");
        assert_eq!(choose(&of("m=1024,v=128256"), &Chip::H200), "block");
        assert_eq!(choose(&of("m=1,v=100"), &Chip::H200), "block");
    }
}
