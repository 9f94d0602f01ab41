//! What vendors print: cited figures, to hold measured ceilings against and to draw a card that nobody here has.

use super::Ceilings;
use crate::error::{Error, Result};
use crate::op::Chip;
use crate::units::Provenance;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Where a figure comes from.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Source {
    /// `datasheet`, `white paper`, `device`, `published table` and the like; `assumed` where nobody says it.
    pub kind: String,
    pub source: String,
    /// Whether its text was read for this table; else the figure is quoted from memory, and waits for another source.
    pub read: bool,
    /// When it was taken from there.
    pub date: String,
}

/// Values of one machine, by key, that have the same sources.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Basis {
    pub from: Vec<String>,
    pub values: Vec<String>,
}

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
    /// Shared memory of a multiprocessor; a block gets 1 KiB less.
    #[serde(default)]
    pub shared_kib: Option<u64>,
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
    /// Sources of each value of the table.
    #[serde(default)]
    pub basis: Vec<Basis>,
    /// Where a user's own machine comes from, and when.
    #[serde(default)]
    pub source: String,
    #[serde(default)]
    pub date: String,
    #[serde(default)]
    pub note: Option<String>,
}

#[derive(Deserialize)]
struct File {
    sources: BTreeMap<String, Source>,
    machines: Vec<Datasheet>,
}

static TABLE: LazyLock<File> = LazyLock::new(|| {
    let text = include_str!("../../data/machines.json");
    serde_json::from_str(text).expect("data/machines.json is checked by the tests")
});

/// The machine table, `data/machines.json`: vendors' datasheets and white papers. Where a sheet prints the sparse rate,
/// half of it stands there.
pub static DATASHEETS: LazyLock<Vec<Datasheet>> = LazyLock::new(|| TABLE.machines.clone());

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
        (Some(mib), Some(source)) => (mib << 20, Provenance::Cited, source.clone()),
        (Some(mib), None) => {
            let source = d.sources("visible_mib").first().map_or(&d.source, |s| &s.source);
            (mib << 20, Provenance::Cited, source.clone())
        }
        _ => {
            let bytes = (d.memory_gb * 0.98 * f64::from(1 << 30)) as u64;
            (bytes, Provenance::Assumed, "98 % of the datasheet's nominal size, taken as GiB".into())
        }
    }
}

/// A printed rate beside what other figures of the same card make of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Formula {
    pub key: &'static str,
    pub printed: f64,
    pub derived: f64,
    /// Whether the formula gives a bound (the rate at the highest clock) in place of the rate.
    pub most: bool,
}

/// Relative difference that rounded clocks and rates explain.
const ROUNDED: f64 = 0.013;
/// The same of rates that sheets print with two digits only.
const TWO_DIGITS: f64 = 0.025;

impl Formula {
    pub fn holds(&self) -> bool {
        let off = self.printed / self.derived - 1.0;
        let within = if self.key == "bf16_tflops" || self.key == "fp32_tflops" { ROUNDED } else { TWO_DIGITS };
        off <= within && (self.most || off >= -within)
    }
}

/// A value of the table that a device contradicts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    pub what: &'static str,
    pub table: String,
    pub device: String,
    /// Where the table has it from.
    pub source: String,
}

impl Datasheet {
    /// Sources of a value by its key, the first the one it was taken from.
    pub fn sources(&self, key: &str) -> Vec<&'static Source> {
        let of = |b: &&Basis| b.values.iter().any(|v| v == key);
        let ids = self.basis.iter().find(of).map_or(&[][..], |b| b.from.as_slice());
        ids.iter().filter_map(|id| TABLE.sources.get(id)).collect()
    }

    /// The same as text.
    pub fn cited(&self, key: &str) -> String {
        let text: Vec<String> = self.sources(key).iter().map(|s| format!("{}: {}", s.kind, s.source)).collect();
        match text.is_empty() {
            true => self.source.clone(),
            false => text.join("; "),
        }
    }

    /// Each rate that follows from clock and width, or from another rate: bf16 = multiprocessors × multiply-adds × 2 ×
    /// tensor clock (at most that of the highest clock, where the sheet does not say the tensor clock); fp32 = 128 lanes
    /// × 2 × clock (64 lanes on 8.0); tf32 half of bf16, fp8 twice, int8 twice and fp4 four times it. GeForce cards
    /// accumulate bf16 in fp32 at half their rate, so that their int8 is four times and fp4 eight times it.
    pub fn formulas(&self) -> Vec<Formula> {
        let sms = f64::from(self.sms);
        let mut all = Vec::new();
        let clock = self.tensor_mhz.map(|mhz| (mhz, false)).or(self.boost_mhz.map(|mhz| (mhz, true)));
        if let (Some(fma), Some((mhz, most))) = (self.fma_per_clock, clock) {
            let derived = sms * fma * 2.0 * mhz / 1e6;
            all.push(Formula { key: "bf16_tflops", printed: self.bf16_tflops, derived, most });
        }
        if let Some(mhz) = self.boost_mhz {
            let lanes = if self.sm == 80 { 64.0 } else { 128.0 };
            let derived = sms * lanes * 2.0 * mhz / 1e6;
            all.push(Formula { key: "fp32_tflops", printed: self.fp32_tflops, derived, most: false });
        }
        let geforce = self.fma_per_clock == Some(256.0);
        let integer = if geforce { 2.0 } else { 1.0 };
        for (key, printed, times) in [
            ("tf32_tflops", self.tf32_tflops, 0.5),
            ("fp8_tflops", self.fp8_tflops, 2.0),
            ("int8_tops", self.int8_tops, 2.0 * integer),
            ("fp4_tflops", self.fp4_tflops, 4.0 * integer),
        ] {
            if let Some(printed) = printed {
                all.push(Formula { key, printed, derived: times * self.bf16_tflops, most: false });
            }
        }
        all
    }

    /// What a device says otherwise than the table: capability, multiprocessors, L2, shared memory of a block, memory.
    pub fn against(&self, chip: &Chip, memory_bytes: u64) -> Vec<Mismatch> {
        let mut found = Vec::new();
        let mut hold = |what, key: &str, table: String, device: String, same: bool| {
            if !same {
                found.push(Mismatch { what, table, device, source: self.cited(key) });
            }
        };
        let capability = |sm: u32| format!("{}.{}", sm / 10, sm % 10);
        hold("capability", "sm", capability(self.sm), capability(chip.sm), self.sm == chip.sm);
        hold("multiprocessors", "sms", self.sms.to_string(), chip.sms.to_string(), self.sms == chip.sms);
        let mib = |bytes: u64| format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20));
        let l2 = self.l2_mib << 20;
        // Some drivers give out a little less than the whole, and sheets say MB.
        let near = |a: u64, b: u64, by: f64| (a as f64 / b as f64 - 1.0).abs() <= by;
        hold("L2", "l2_mib", mib(l2), mib(chip.l2_bytes), near(chip.l2_bytes, l2, 0.05));
        if let Some(kib) = self.shared_kib {
            let block = (kib - 1) << 10;
            let same = u64::from(chip.shared_optin) == block;
            hold("shared memory of a block", "shared_kib", block.to_string(), chip.shared_optin.to_string(), same);
        }
        let (expected, provenance, _) = memory(self);
        let key = if provenance == Provenance::Cited { "visible_mib" } else { "memory_gb" };
        // An assumed size is 98 % of the nominal one; cards with ECC in memory give out less.
        // Drivers keep different shares to themselves: that of Windows gives out all, 1.5 % more.
        let within = if provenance == Provenance::Cited { 0.02 } else { 0.07 };
        hold("memory", key, mib(expected), mib(memory_bytes), near(memory_bytes, expected, within));
        found
    }

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
    fn eighteen_cards_whose_rates_are_their_clocks() {
        assert!(DATASHEETS.len() >= 18);
        let mut free = Vec::new();
        for d in DATASHEETS.iter() {
            let formulas = d.formulas();
            for f in &formulas {
                assert!(f.holds(), "{}: {f:?}", d.key);
            }
            let rates = [
                ("bf16_tflops", Some(d.bf16_tflops)),
                ("fp32_tflops", Some(d.fp32_tflops)),
                ("tf32_tflops", d.tf32_tflops),
                ("fp8_tflops", d.fp8_tflops),
                ("int8_tops", d.int8_tops),
                ("fp4_tflops", d.fp4_tflops),
            ];
            let unheld = rates.iter().filter(|(k, v)| v.is_some() && !formulas.iter().any(|f| f.key == *k));
            free.extend(unheld.map(|(k, _)| format!("{} {k}", d.key)));
        }
        assert!(free.is_empty(), "{free:?}");
        let wrong = Datasheet { bf16_tflops: 1_979.0, ..datasheet("h100").unwrap().clone() };
        assert!(wrong.formulas().iter().any(|f| !f.holds()), "a sparse rate is found");
        let sparse = Datasheet { bf16_tflops: 1_671.0, ..datasheet("h100-nvl").unwrap().clone() };
        assert!(sparse.formulas().iter().any(|f| f.key == "bf16_tflops" && !f.holds()));
    }

    #[test]
    fn every_value_has_its_kind_source_and_date() {
        let text = include_str!("../../data/machines.json");
        let file: serde_json::Value = serde_json::from_str(text).unwrap();
        for m in file["machines"].as_array().unwrap() {
            let d = datasheet(m["key"].as_str().unwrap()).unwrap();
            let keys: Vec<&String> = m.as_object().unwrap().keys().collect();
            for key in keys.iter().filter(|k| !["key", "name", "note", "basis"].contains(&k.as_str())) {
                let sources = d.sources(key);
                assert!(!sources.is_empty(), "{} {key} has no source", d.key);
                for s in sources {
                    assert!(!s.kind.is_empty() && !s.source.is_empty() && s.date.starts_with("20"), "{s:?}");
                }
            }
            for b in &d.basis {
                assert!(b.from.iter().all(|id| TABLE.sources.contains_key(id)), "{}: {:?}", d.key, b.from);
                assert!(b.values.iter().all(|v| keys.contains(&v)), "{}: {:?}", d.key, b.values);
            }
        }
        assert_eq!(datasheet("h200").unwrap().sources("l2_mib")[0].kind, "device");
    }

    /// What has one source is what a formula holds: fp32 = lanes × clock ties multiprocessors, clock and rate; bf16 ties
    /// its width and clock where the clock is not derived from it; other rates follow from bf16. Visible memory is a
    /// device's own word.
    #[test]
    fn every_value_has_two_sources_or_a_formula() {
        let alone = |d: &Datasheet| {
            let formulas = d.formulas();
            let exact = |key: &str| formulas.iter().any(|f| f.key == key && !f.most);
            let clock_is_known = d.sources("tensor_mhz").first().is_some_and(|s| s.kind != "derived");
            let bf16 = exact("bf16_tflops") && clock_is_known;
            let held = |v: &str| match v {
                "bf16_tflops" | "fma_per_clock" => bf16,
                "tensor_mhz" => exact("bf16_tflops"),
                "sms" | "boost_mhz" => exact("fp32_tflops"),
                "visible_mib" => true,
                rate => exact(rate),
            };
            let one = d.basis.iter().filter(|b| b.from.len() < 2).flat_map(|b| b.values.iter());
            one.filter(|v| !held(v)).map(|v| format!("{} {v}", d.key)).collect::<Vec<_>>()
        };
        let waiting: Vec<String> = DATASHEETS.iter().flat_map(alone).collect();
        assert!(waiting.is_empty(), "{waiting:?} have one source and no formula");
        let mut unheld = datasheet("b200").unwrap().clone();
        unheld.basis.push(Basis { from: vec!["guide".into()], values: vec!["l2_mib".into(), "fma_per_clock".into()] });
        assert_eq!(alone(&unheld), ["b200 l2_mib", "b200 fma_per_clock"]);
    }

    /// The width of Hopper's tensor cores, whose clock no sheet says: the narrowest power of two that reaches the recorded
    /// rate at the highest clock. The next one would make the printed rate at less than half of that clock.
    #[test]
    fn the_recorded_rate_says_the_width() {
        let (sheet, card) = (datasheet("h200").unwrap(), Ceilings::h200());
        let width = |tflops: f64| tflops * 1e6 / (f64::from(sheet.sms) * 2.0 * sheet.boost_mhz.unwrap());
        let powers: Vec<f64> = (0..16).map(|p| f64::from(1u32 << p)).collect();
        let wide: Vec<f64> = powers.into_iter().filter(|w| *w >= width(card.bf16_tflops)).collect();
        assert_eq!(Some(wide[0]), sheet.fma_per_clock);
        assert!(wide[1] > 2.0 * width(sheet.bf16_tflops));
        for d in DATASHEETS.iter().filter(|d| d.sm == 90) {
            assert_eq!(d.fma_per_clock, sheet.fma_per_clock, "{}", d.key);
        }
    }

    /// Queries of the devices say clock and bus: what they make is the sheet's rate, or stands in the note.
    #[test]
    fn memory_rates_are_clock_times_bus() {
        // MHz and bits, from the table's device sources; two transfers a clock.
        let queries = [
            ("rtx3090", 9751.0, 384.0),
            ("rtx4090", 10_501.0, 384.0),
            ("rtx5090", 14_001.0, 512.0),
            ("a10", 6251.0, 384.0),
            ("l4", 6251.0, 192.0),
            ("l40s", 9001.0, 384.0),
            ("a100-40-pcie", 1215.0, 5120.0),
            ("a100-80-pcie", 1512.0, 5120.0),
            ("a100-80", 1593.0, 5120.0),
            ("h100-pcie", 1593.0, 5120.0),
            ("h100", 2619.0, 5120.0),
            ("h100-nvl", 2619.0, 6144.0),
            ("h200", 3201.0, 6144.0),
            ("gh200", 3201.0, 6144.0),
            ("b200", 3996.0, 7680.0),
            ("gb200", 3996.0, 7936.0),
        ];
        let mut off = Vec::new();
        for (key, mhz, bits) in queries {
            let d = datasheet(key).unwrap();
            let made = 2.0 * mhz * bits / 8e3;
            let by = d.memory_gbps / made - 1.0;
            // Sheets of large cards have two digits.
            assert!(
                (-0.025..=0.011).contains(&by),
                "{key}: {made:.0} GB/s of clock and bus, {} printed",
                d.memory_gbps
            );
            if by < -0.011 {
                assert!(d.note.as_ref().is_some_and(|n| n.contains(&format!("{made:.0} GB/s"))), "{key}: {made}");
                off.push(key);
            }
        }
        assert_eq!(off, ["h100-nvl", "h200"], "sheets below what clock and bus make, said in the note");
    }

    #[test]
    fn a_device_is_the_judge_of_the_table() {
        let h200 = datasheet("h200").unwrap();
        assert_eq!(h200.against(&Chip::H200, 150_109_880_320), []);
        let other = Chip { sms: 114, l2_bytes: 50 << 20, shared_optin: 101_376, sm: 89 };
        let what: Vec<&str> = h200.against(&other, 80 << 30).iter().map(|m| m.what).collect();
        assert_eq!(what, ["capability", "multiprocessors", "L2", "shared memory of a block", "memory"]);
        let l2 = &h200.against(&Chip { l2_bytes: 50 << 20, ..Chip::H200 }, 150_109_880_320)[0];
        assert!(l2.table == "60 MiB" && l2.device == "50 MiB" && l2.source.contains("device query"), "{l2:?}");
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
