//! The driver's answers, recorded, beside this arithmetic: CSV of one configuration a row.

use super::{Block, Limits, limits, occupancy};
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// One question to the driver and its answer. Shared memory in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    pub kernel: String,
    pub sm: u32,
    pub threads: u32,
    pub registers: u32,
    pub static_shared: u32,
    pub dynamic_shared: u32,
    /// Resident blocks on one multiprocessor, as the driver says.
    pub blocks: u32,
}

impl Answer {
    /// What the arithmetic says; 0 for a block that cannot be launched.
    ///
    /// # Errors
    /// A compute capability that is not known.
    pub fn ours(&self) -> Result<u32> {
        let block = Block {
            threads: self.threads,
            registers: self.registers,
            shared: self.static_shared.saturating_add(self.dynamic_shared),
        };
        Ok(occupancy(limits(self.sm)?, block).map_or(0, |o| o.blocks))
    }
}

/// Block sizes that are asked about: one warp to all, odd counts of warps among them.
pub const THREADS: [u32; 11] = [32, 64, 96, 128, 160, 192, 256, 384, 512, 768, 1024];

/// Dynamic shared memory that is asked about for a kernel with `fixed` bytes of its own: none, below and above the 48 KiB
/// that need no opting in, either side of where a half, a third and a quarter of a multiprocessor end, and all there is.
pub fn dynamic_sizes(limits: &Limits, fixed: u32) -> Vec<u32> {
    let parts = [2, 3, 4].map(|n| (limits.shared / n) / 128 * 128 - 1024).into_iter().flat_map(|s| [s, s + 1]);
    let mut sizes: Vec<u32> = [1_000, 8 << 10, 20_000, 48 << 10, (48 << 10) + 128]
        .into_iter()
        .chain(parts)
        .chain([limits.shared_optin])
        .filter(|s| *s <= limits.shared_optin)
        .map(|s| s.saturating_sub(fixed))
        .chain([0])
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// All answers as CSV, `about` in a comment above them.
pub fn to_csv(about: &str, answers: &[Answer]) -> Result<String> {
    let failed = |e: &dyn std::fmt::Display| Error::usage(format!("cannot write CSV: {e}"));
    let mut writer = csv::Writer::from_writer(Vec::new());
    for answer in answers {
        writer.serialize(answer).map_err(|e| failed(&e))?;
    }
    let bytes = writer.into_inner().map_err(|e| failed(&e))?;
    let about: String = about.lines().map(|l| format!("# {l}\n")).collect();
    Ok(about + &String::from_utf8(bytes).map_err(|e| failed(&e))?)
}

/// Reads what [`to_csv`] wrote.
pub fn from_csv(name: &str, text: &str) -> Result<Vec<Answer>> {
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(text.as_bytes());
    let rows = reader.deserialize().collect::<std::result::Result<Vec<Answer>, _>>();
    let rows = rows.map_err(|e| Error::usage(format!("{name} holds no recorded occupancies: {e}")))?;
    if rows.is_empty() {
        return Err(Error::usage(format!("{name} holds no recorded occupancies"))
            .try_next("workbench occupancy --check-driver --record FILE"));
    }
    Ok(rows)
}

/// The answers that the arithmetic does not give, each with what it gives.
pub fn differing(answers: &[Answer]) -> Result<Vec<(&Answer, u32)>> {
    let all = answers.iter().map(|a| Ok((a, a.ours()?))).collect::<Result<Vec<_>>>()?;
    Ok(all.into_iter().filter(|(a, ours)| a.blocks != *ours).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_back_and_a_wrong_one_is_found() {
        let answer = |dynamic_shared, blocks| Answer {
            kernel: "o/v k".into(),
            sm: 90,
            threads: 128,
            registers: 64,
            static_shared: 1024,
            dynamic_shared,
            blocks,
        };
        // 64 registers: 2048 a warp, 32 warps, eight blocks of four; 111 KiB and the reserved KiB: two, 114 and that: one.
        let all = [answer(0, 8), answer(111 << 10, 2), answer(114 << 10, 2)];
        let text = to_csv("A card\nand its driver", &all).unwrap();
        assert!(text.starts_with("# A card\n# and"), "{text}");
        assert_eq!(from_csv("f", &text).unwrap(), all);
        let wrong = differing(&all).unwrap();
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        assert_eq!((wrong[0].0.dynamic_shared, wrong[0].1), (114 << 10, 1));
        assert!(from_csv("f", "kernel,sm\n").is_err() && from_csv("f", "a,b\n1,2\n").is_err());
    }

    #[test]
    fn sizes_cross_every_boundary_and_fit() {
        for l in super::super::LIMITS {
            for fixed in [0, 1024, 40_000] {
                let sizes = dynamic_sizes(l, fixed);
                assert!(sizes.iter().all(|s| s + fixed <= l.shared_optin.max(fixed)), "{l:?} {sizes:?}");
                assert!(sizes[0] == 0 && sizes.len() >= 6, "{sizes:?}");
            }
        }
    }
}
