//! The environment block that every report prints: a number without it cannot be compared with anything.

use super::clocks::{Clocks, Reading};
use super::{Device, image};
use serde::{Deserialize, Serialize};

/// Where and how something was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    pub gpu: String,
    /// Last part of the UUID.
    pub uuid_tail: String,
    pub compute_capability: String,
    pub sms: u32,
    pub l2_bytes: u64,
    pub memory_bytes: u64,
    pub power_limit_w: Option<f64>,
    /// Kernel driver.
    pub driver: Option<String>,
    /// CUDA level of the driver.
    pub cuda: String,
    pub cupti: Option<String>,
    pub nvcc: Option<String>,
    pub nvrtc: Option<String>,
    pub workbench: String,
    pub commit: Option<String>,
    pub dirty: bool,
    /// The command, without the path of the program.
    pub command: String,
    /// UTC, RFC 3339.
    pub started: String,
    pub before: Reading,
    pub after: Reading,
}

impl Environment {
    /// Reads everything but `after`, which [`Environment::finish`] adds.
    pub fn begin(device: &Device, clocks: &Clocks) -> Self {
        let info = device.info();
        let built = &image::TOOLCHAIN;
        Self {
            gpu: info.name.clone(),
            uuid_tail: info.uuid_tail().into(),
            compute_capability: format!("{}.{}", info.chip.sm / 10, info.chip.sm % 10),
            sms: info.chip.sms,
            l2_bytes: info.chip.l2_bytes,
            memory_bytes: info.memory_bytes,
            power_limit_w: clocks.power_limit_w(),
            driver: clocks.driver_version(),
            cuda: super::driver::version_text(device.driver()),
            cupti: None,
            nvcc: built.nvcc.map(String::from),
            nvrtc: None,
            workbench: env!("CARGO_PKG_VERSION").into(),
            commit: built.commit.map(String::from),
            dirty: built.dirty,
            command: command(),
            started: jiff::Timestamp::now().to_string(),
            before: clocks.read(),
            after: Reading::default(),
        }
    }
    /// Adds the reading after the work.
    pub fn finish(mut self, clocks: &Clocks) -> Self {
        self.after = clocks.read();
        self
    }
    /// Two lines for a terminal.
    pub fn lines(&self) -> String {
        let or = |v: &Option<String>, none: &str| v.clone().unwrap_or_else(|| none.into());
        let mhz = |r: &Reading| r.sm_mhz.map_or("?".into(), |v| v.to_string());
        let commit = match &self.commit {
            Some(commit) => format!("{}{}", &commit[..commit.len().min(10)], if self.dirty { "+changes" } else { "" }),
            None => "no commit".into(),
        };
        let mut text = format!(
            "{} …{}, {} SMs, driver {}, CUDA {}, nvcc {}, workbench {} {commit}\n{}, SM {} → {} MHz",
            self.gpu,
            self.uuid_tail,
            self.sms,
            or(&self.driver, "?"),
            self.cuda,
            or(&self.nvcc, "none"),
            self.workbench,
            self.started,
            mhz(&self.before),
            mhz(&self.after),
        );
        if let (Some(w), Some(c)) = (self.after.power_w, self.after.temperature_c) {
            text += &format!(", {w:.0} W, {c} °C");
        }
        if !self.after.throttle.is_empty() {
            text += &format!(", held by {}", self.after.throttle.join(", "));
        }
        text
    }
}

/// `workbench bench softmax`: the program by name only, so that no report tells where it lay.
pub fn command() -> String {
    let mut args = std::env::args();
    let program = args.next().unwrap_or_default();
    let program = std::path::Path::new(&program).file_name().map_or(program.clone(), |n| n.to_string_lossy().into());
    std::iter::once(program).chain(args).collect::<Vec<_>>().join(" ")
}
