//! What vendors print: cited figures, to hold measured ceilings against and to draw a card that nobody here has.

use super::Ceilings;
use crate::error::{Error, Result};
use crate::units::Provenance;
use serde::Deserialize;
use std::sync::LazyLock;

/// A datasheet's figures: dense rates with fp32 accumulation, GB/s and TFLOP/s. A file of this form, one object, is a
/// user's own machine.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Datasheet {
    /// What the command line takes.
    pub key: String,
    /// What the driver calls the card.
    pub name: String,
    /// Compute capability as one number.
    pub sm: u32,
    pub sms: u32,
    pub l2_mib: u64,
    /// Nominal size of the memory, GB as printed on the box.
    pub memory_gb: f64,
    pub memory_gbps: f64,
    pub fp32_tflops: f64,
    #[serde(default)]
    pub tf32_tflops: Option<f64>,
    pub bf16_tflops: f64,
    #[serde(default)]
    pub fp8_tflops: Option<f64>,
    #[serde(default)]
    pub int8_tops: Option<f64>,
    #[serde(default)]
    pub fp4_tflops: Option<f64>,
    #[serde(default)]
    pub base_mhz: Option<f64>,
    #[serde(default)]
    pub boost_mhz: Option<f64>,
    /// The clock that the tensor rates are stated at; absent where the sheet does not say.
    #[serde(default)]
    pub tensor_mhz: Option<f64>,
    /// bf16 multiply-adds of one multiprocessor in one clock.
    #[serde(default)]
    pub fma_per_clock: Option<f64>,
    /// Both directions together.
    #[serde(default)]
    pub nvlink_gbps: Option<f64>,
    #[serde(default)]
    pub pcie: Option<u32>,
    pub power_w: u32,
    /// What a driver was seen to give out, and where.
    #[serde(default)]
    pub visible_mib: Option<u64>,
    #[serde(default)]
    pub visible_source: Option<String>,
    pub source: String,
    /// When it was taken from there.
    pub date: String,
    #[serde(default)]
    pub note: Option<String>,
}

/// The machine table, `data/machines.json`: vendors' datasheets and white papers. Where a sheet prints the sparse rate,
/// half of it stands there.
pub static DATASHEETS: LazyLock<Vec<Datasheet>> = LazyLock::new(|| {
    #[derive(Deserialize)]
    struct File {
        machines: Vec<Datasheet>,
    }
    let text = include_str!("../../data/machines.json");
    serde_json::from_str::<File>(text).expect("data/machines.json is checked by the tests").machines
});

/// A datasheet by its key or by the driver's name.
pub fn datasheet(name: &str) -> Option<&'static Datasheet> {
    DATASHEETS.iter().find(|d| d.key == name || d.name == name)
}

/// A datasheet by its key (case ignored), or from a user's JSON file.
///
/// # Errors
/// An unknown name (with the nearest known one), or a file that is no datasheet.
pub fn find(name: &str) -> Result<Datasheet> {
    if let Some(d) = datasheet(name).or_else(|| datasheet(&name.to_lowercase())) {
        return Ok(d.clone());
    }
    if name.ends_with(".json") {
        let bad = |e: &dyn std::fmt::Display| {
            Error::usage(format!("{name} is no machine: {e}"))
                .try_next("one object with the keys of data/machines.json")
        };
        let text = std::fs::read_to_string(name).map_err(|e| bad(&e))?;
        let d: Datasheet = serde_json::from_str(&text).map_err(|e| bad(&e))?;
        let positive = [d.memory_gb, d.memory_gbps, d.fp32_tflops, d.bf16_tflops].iter().all(|v| *v > 0.0);
        return if positive && d.sms > 0 { Ok(d) } else { Err(bad(&"its figures must be above 0")) };
    }
    let keys: Vec<&str> = DATASHEETS.iter().map(|d| d.key.as_str()).collect();
    let near = crate::op::nearest(name, keys.iter().copied());
    let near = near.map_or(String::new(), |n| format!("`{n}`; or "));
    Err(Error::usage(format!("there is no datasheet of `{name}` here"))
        .try_next(format!("{near}one of {}, or a machine's .json", keys.join(", "))))
}

/// Bytes of memory that an engine finds: as a driver was seen to report it, else 98 % of the nominal size taken as GiB.
pub fn memory(d: &Datasheet) -> (u64, Provenance, String) {
    match (d.visible_mib, &d.visible_source) {
        (Some(mib), source) => (mib << 20, Provenance::Cited, source.clone().unwrap_or_else(|| d.source.clone())),
        _ => {
            let bytes = (d.memory_gb * 0.98 * f64::from(1 << 30)) as u64;
            (bytes, Provenance::Assumed, "98 % of the datasheet's nominal size, taken as GiB".into())
        }
    }
}

impl Datasheet {
    /// The figures as if they were ceilings. No card reaches them; every floor made from them is too low, and says that
    /// it is cited. Launch costs are the H200's recorded ones.
    pub fn ceilings(&self) -> Ceilings {
        Ceilings {
            gpu: self.name.clone(),
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
        for d in DATASHEETS.iter() {
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

    #[test]
    fn eighteen_cards_whose_tensor_rate_is_their_clock() {
        assert!(DATASHEETS.len() >= 18);
        let mut held = 0;
        for d in DATASHEETS.iter() {
            assert!(!d.source.is_empty() && !d.date.is_empty(), "{}", d.key);
            let (Some(fma), Some(mhz)) = (d.fma_per_clock, d.tensor_mhz) else { continue };
            let rate = f64::from(d.sms) * fma * 2.0 * mhz * 1e6 / 1e12;
            assert!((d.bf16_tflops / rate - 1.0).abs() < 0.013, "{}: {rate}", d.key);
            held += 1;
        }
        assert!(held >= 15, "{held}");
    }

    #[test]
    fn names_are_forgiven_and_files_are_read() {
        assert_eq!(find("H200").unwrap().key, "h200");
        assert!(find("h20o").unwrap_err().next.unwrap().starts_with("`h200`"));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mine.json");
        let text = r#"{"key":"mine","name":"Mine","sm":90,"sms":100,"l2_mib":50,"memory_gb":64,"memory_gbps":3000,
            "fp32_tflops":50,"bf16_tflops":700,"power_w":500,"source":"me","date":"2026-11-30"}"#;
        std::fs::write(&file, text).unwrap();
        let mine = find(file.to_str().unwrap()).unwrap();
        assert_eq!((mine.sms, memory(&mine).1), (100, Provenance::Assumed));
        std::fs::write(&file, text.replace("3000", "0")).unwrap();
        assert!(find(file.to_str().unwrap()).is_err());
    }
}
