//! What vendors print: cited figures, to hold measured ceilings against and to draw a card that nobody here has.

use super::Ceilings;
use crate::units::Provenance;

/// A datasheet's figures. Dense rates with fp32 accumulation; GB/s and TFLOP/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Datasheet {
    /// What the command line takes.
    pub key: &'static str,
    /// What the driver calls the card.
    pub name: &'static str,
    /// Compute capability as one number.
    pub sm: u32,
    pub sms: u32,
    pub l2_mib: u64,
    pub memory_gbps: f64,
    pub fp32_tflops: f64,
    pub bf16_tflops: f64,
    pub fp8_tflops: Option<f64>,
    pub power_w: u32,
}

const fn sheet(
    (key, name): (&'static str, &'static str),
    (sm, sms, l2_mib, power_w): (u32, u32, u64, u32),
    memory_gbps: f64,
    (fp32_tflops, bf16_tflops, fp8_tflops): (f64, f64, Option<f64>),
) -> Datasheet {
    Datasheet { key, name, sm, sms, l2_mib, memory_gbps, fp32_tflops, bf16_tflops, fp8_tflops, power_w }
}

/// Cards by vendors' datasheets and white papers. Where a sheet prints the sparse rate, half of it stands here.
pub static DATASHEETS: &[Datasheet] = &[
    sheet(("rtx3090", "NVIDIA GeForce RTX 3090"), (86, 82, 6, 350), 936.0, (35.6, 71.2, None)),
    sheet(("rtx4090", "NVIDIA GeForce RTX 4090"), (89, 128, 72, 450), 1_008.0, (82.6, 165.2, Some(330.0))),
    sheet(("rtx5090", "NVIDIA GeForce RTX 5090"), (120, 170, 96, 575), 1_792.0, (104.8, 209.5, Some(419.0))),
    sheet(("a10", "NVIDIA A10"), (86, 72, 6, 150), 600.0, (31.2, 125.0, None)),
    sheet(("l4", "NVIDIA L4"), (89, 58, 48, 72), 300.0, (30.3, 121.0, Some(242.0))),
    sheet(("l40s", "NVIDIA L40S"), (89, 142, 96, 350), 864.0, (91.6, 362.0, Some(733.0))),
    sheet(("a100-40", "NVIDIA A100-SXM4-40GB"), (80, 108, 40, 400), 1_555.0, (19.5, 312.0, None)),
    sheet(("a100-80", "NVIDIA A100-SXM4-80GB"), (80, 108, 40, 400), 2_039.0, (19.5, 312.0, None)),
    sheet(("h100-pcie", "NVIDIA H100 PCIe"), (90, 114, 50, 350), 2_039.0, (51.2, 756.0, Some(1_513.0))),
    sheet(("h100", "NVIDIA H100 80GB HBM3"), (90, 132, 50, 700), 3_350.0, (66.9, 989.0, Some(1_979.0))),
    sheet(("h200", "NVIDIA H200"), (90, 132, 60, 700), 4_800.0, (66.9, 989.0, Some(1_979.0))),
    sheet(("b200", "NVIDIA B200"), (100, 148, 126, 1000), 8_000.0, (80.0, 2_250.0, Some(4_500.0))),
];

/// A datasheet by its key or by the driver's name.
pub fn datasheet(name: &str) -> Option<&'static Datasheet> {
    DATASHEETS.iter().find(|d| d.key == name || d.name == name)
}

impl Datasheet {
    /// The figures as if they were ceilings. No card reaches them; every floor made from them is too low, and says that
    /// it is cited. Launch costs are the H200's recorded ones.
    pub fn ceilings(&self) -> Ceilings {
        Ceilings {
            gpu: self.name.into(),
            uuid_tail: String::new(),
            provenance: Provenance::Cited,
            source: "the vendor's datasheet".into(),
            sms: self.sms,
            l2_bytes: self.l2_mib << 20,
            read_gbps: self.memory_gbps,
            write_gbps: self.memory_gbps,
            copy_gbps: self.memory_gbps,
            l2_gbps: None,
            bf16_tflops: self.bf16_tflops,
            bf16_sustained_tflops: self.bf16_tflops,
            fp16_tflops: self.bf16_tflops,
            fp8_tflops: self.fp8_tflops,
            fp32_tflops: self.fp32_tflops,
            ..Ceilings::h200()
        }
    }

    /// What a kernel may hope for on this card: each datasheet rate times the share of its own datasheet that the
    /// recorded H200 reaches. An estimate for a card that nobody measured; launch costs are the H200's.
    pub fn expected(&self) -> Ceilings {
        let (h200, most) = (Ceilings::h200(), self.ceilings());
        let sheet = datasheet("h200").expect("the table holds the card of the recording").ceilings();
        Ceilings {
            provenance: Provenance::Derived,
            source: "datasheet rates × the shares of theirs that a recorded H200 reaches".into(),
            read_gbps: most.read_gbps * h200.read_gbps / sheet.read_gbps,
            write_gbps: most.write_gbps * h200.write_gbps / sheet.write_gbps,
            copy_gbps: most.copy_gbps * h200.copy_gbps / sheet.copy_gbps,
            bf16_tflops: most.bf16_tflops * h200.bf16_tflops / sheet.bf16_tflops,
            bf16_sustained_tflops: most.bf16_tflops * h200.bf16_sustained_tflops / sheet.bf16_tflops,
            fp16_tflops: most.fp16_tflops * h200.fp16_tflops / sheet.fp16_tflops,
            fp8_tflops: most.fp8_tflops.map(|f| f * h200.bf16_tflops / sheet.bf16_tflops),
            ..most
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_ceilings_are_below_the_datasheet() {
        let (sheet, card) = (datasheet("h200").unwrap(), Ceilings::h200());
        assert_eq!(sheet.name, card.gpu);
        let most = sheet.ceilings();
        assert!(
            card.read_gbps < most.read_gbps && card.write_gbps < most.write_gbps && card.copy_gbps < most.copy_gbps
        );
        assert!(card.bf16_tflops < most.bf16_tflops && card.fp32_tflops <= 1.01 * most.fp32_tflops);
        assert_eq!(most.provenance, Provenance::Cited);
    }

    #[test]
    fn expected_rates_scale_and_return_the_recording() {
        let (h200, card) = (datasheet("h200").unwrap().expected(), Ceilings::h200());
        assert!((h200.read_gbps - card.read_gbps).abs() < 1e-6 && (h200.bf16_tflops - card.bf16_tflops).abs() < 1e-6);
        for d in DATASHEETS {
            let e = d.expected();
            assert!(e.read_gbps < d.memory_gbps && e.bf16_tflops < d.bf16_tflops, "{}", d.key);
            assert_eq!(e.provenance, Provenance::Derived);
        }
    }

    #[test]
    fn keys_and_names_are_unique() {
        for (i, a) in DATASHEETS.iter().enumerate() {
            assert!(DATASHEETS[i + 1..].iter().all(|b| a.key != b.key && a.name != b.name));
        }
    }
}
