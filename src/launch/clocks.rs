//! What the card was doing while we measured: clocks, throttling, power, temperature. Read only; nothing is ever set.

use super::device::Info;
use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use serde::{Deserialize, Serialize};

/// One reading. Clocks in MHz, power in W, temperature in °C; absent where the card does not say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    pub sm_mhz: Option<u32>,
    pub memory_mhz: Option<u32>,
    pub power_w: Option<f64>,
    pub temperature_c: Option<u32>,
    /// Why the clocks are below their maximum, idle left out.
    pub throttle: Vec<String>,
}

impl Reading {
    /// Whether heat or the power brake holds the clocks down: such a time says nothing of the kernel. A power cap is
    /// the card's normal state under a large matrix product and is only noted.
    pub fn slowed_by_heat(&self) -> bool {
        self.throttle.iter().any(|r| r.contains("thermal") || r.contains("hardware"))
    }
}

/// Access to one card's readings; without NVML every reading is empty.
#[derive(Debug)]
pub struct Clocks {
    nvml: Option<Nvml>,
    uuid: String,
}

impl Clocks {
    pub fn new(gpu: &Info) -> Self {
        // The plain name is a development link that driver packages leave out.
        let nvml = Nvml::builder().lib_path("libnvidia-ml.so.1".as_ref()).init().or_else(|_| Nvml::init()).ok();
        Self { nvml, uuid: gpu.uuid.clone() }
    }
    fn device(&self) -> Option<nvml_wrapper::Device<'_>> {
        self.nvml.as_ref()?.device_by_uuid(self.uuid.as_str()).ok()
    }
    /// Version of the kernel driver, as `580.159.04`.
    pub fn driver_version(&self) -> Option<String> {
        self.nvml.as_ref()?.sys_driver_version().ok()
    }
    /// Power limit in W.
    pub fn power_limit_w(&self) -> Option<f64> {
        self.device()?.enforced_power_limit().ok().map(|mw| f64::from(mw) / 1e3)
    }
    /// Highest SM clock in MHz.
    pub fn max_sm_mhz(&self) -> Option<u32> {
        self.device()?.max_clock_info(Clock::SM).ok()
    }
    /// Reads everything now; a fraction of a millisecond.
    pub fn read(&self) -> Reading {
        let Some(device) = self.device() else { return Reading::default() };
        let reasons = device.current_throttle_reasons().unwrap_or_else(|_| ThrottleReasons::empty());
        let named = [
            (ThrottleReasons::APPLICATIONS_CLOCKS_SETTING, "application clocks"),
            (ThrottleReasons::SW_POWER_CAP, "power cap"),
            (ThrottleReasons::HW_SLOWDOWN, "hardware slowdown"),
            (ThrottleReasons::SYNC_BOOST, "sync boost"),
            (ThrottleReasons::SW_THERMAL_SLOWDOWN, "thermal, software"),
            (ThrottleReasons::HW_THERMAL_SLOWDOWN, "thermal, hardware"),
            (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, "power brake, hardware"),
            (ThrottleReasons::DISPLAY_CLOCK_SETTING, "display clocks"),
        ];
        Reading {
            sm_mhz: device.clock_info(Clock::SM).ok(),
            memory_mhz: device.clock_info(Clock::Memory).ok(),
            power_w: device.power_usage().ok().map(|mw| f64::from(mw) / 1e3),
            temperature_c: device.temperature(TemperatureSensor::Gpu).ok(),
            throttle: named.iter().filter(|(flag, _)| reasons.contains(*flag)).map(|(_, n)| n.to_string()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_power_cap_is_no_heat() {
        let with = |reason: &str| Reading { throttle: vec![reason.into()], ..Reading::default() };
        assert!(!with("power cap").slowed_by_heat());
        assert!(with("thermal, software").slowed_by_heat() && with("hardware slowdown").slowed_by_heat());
    }
}
