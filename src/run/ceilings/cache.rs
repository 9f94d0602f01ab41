//! What does not leave the chip: L2 reads and plain multiply-adds.

use super::Session;
use crate::error::{Error, Result};
use crate::op::{DType, Init};
use crate::run::probes::{self, Config};
use crate::run::{Executor, fill};

impl Session<'_> {
    /// Reading arrays that L2 holds and the L1 caches together might not.
    pub(super) fn l2(&mut self) -> Result<Option<f64>> {
        let chip = self.gpu.chip();
        let mib = chip.l2_bytes >> 20;
        // Half of L2 at most: on a chip whose L2 is in two halves, each keeps its own copy of what the other holds.
        let sizes: Vec<u64> = [mib / 8, mib / 4, mib * 2 / 5].into_iter().filter(|m| *m > 0).map(|m| m << 20).collect();
        let Some(&largest) = sizes.last() else { return Ok(None) };
        let (x, out) = (self.gpu.alloc(largest)?, self.gpu.alloc(4)?);
        self.gpu.fill(x, DType::U8, largest, &Init::Bits, fill::key(1, "l2"))?;
        let mut best: f64 = 0.0;
        for bytes in sizes {
            let passes = ((4u64 << 30) / bytes) as u32;
            let configs: Vec<Config> = [(512, 4), (512, 8), (1024, 4), (256, 8)]
                .into_iter()
                .map(|(block, unroll)| Config { grid: chip.sms * 2048 / block, block, unroll })
                .collect();
            let single = self.sum(out, configs[0].read(x, bytes / 16, out))?;
            for config in &configs {
                if self.sum(out, config.read_l2(x, bytes / 16, passes, out))? != single.wrapping_mul(passes) {
                    return Err(Error::check("the L2 probe computed something wrong"));
                }
            }
            let launches = configs
                .iter()
                .map(|c| (format!("block {} unroll {}", c.block, c.unroll), c.read_l2(x, bytes / 16, passes, out)))
                .collect();
            best =
                best.max(self.best(&format!("L2 read, {} MiB", bytes >> 20), bytes * u64::from(passes), launches)?);
        }
        self.gpu.free(x)?;
        self.gpu.free(out)?;
        Ok(Some(best))
    }

    /// Fused multiply-adds outside the tensor cores.
    pub(super) fn fma(&mut self) -> Result<f64> {
        let (sms, rounds, a, b) = (self.gpu.chip().sms, 4096u32, 0.999f32, 0.001f32);
        let out = self.gpu.alloc(u64::from(sms) * 2048 * 4)?;
        let launch = |block: u32| probes::fma(out, sms * 2048 / block, block, rounds, a, b);
        self.once(launch(256))?;
        for lane in [0u32, 13, 31] {
            let got = f32::from_bits(self.word(out + u64::from(lane) * 4)?);
            let want = probes::fma_result(lane, rounds, a, b);
            if got != want {
                return Err(Error::check(format!(
                    "the multiply-add probe gave {got} for lane {lane}, expected {want}"
                )));
            }
        }
        let launches = [128, 256, 512].map(|block| (format!("block {block}"), launch(block))).to_vec();
        let flops = 2 * probes::FMA_CHAINS * u64::from(rounds) * u64::from(sms) * 2048;
        let rate = self.best("fp32 multiply-add", flops, launches)? / 1e3;
        if let Some(trial) = self.trials.last_mut() {
            trial.rate = Some(rate);
        }
        self.gpu.free(out)?;
        Ok(rate)
    }
}
