//! Every hazard of a measurement; the text gives the advice.

use crate::launch::clocks::Reading;
use serde::Serialize;
use std::fmt;

/// Something that makes a number less than it seems.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "warning", rename_all = "snake_case")]
pub enum Warning {
    /// Heat or the power brake held the clocks down.
    Throttled { reasons: Vec<String> },
    /// The power limit held the clocks down.
    PowerCapped,
    /// Spread (scaled MAD over median) above the limit.
    Noisy { noise: f64, limit: f64 },
    /// Shorter than events can tell.
    BelowEventResolution { ns: f64 },
    /// Inputs may be served from L2.
    L2Resident { bytes: u64, l2_bytes: u64 },
    /// The SM clock moved while sampling.
    ClockDrift { low_mhz: u32, high_mhz: u32 },
    /// Less than physics allows.
    FasterThanFloor { ns: f64, floor_ns: f64 },
    /// The time ran out before enough samples were taken.
    FewSamples { samples: usize, wanted: usize },
    /// Memory did not suffice for as many input sets as a cold cache asks for.
    FewSets { sets: usize, wanted: usize },
}

/// A measurement this far under its floor is more than the ceilings' own error.
pub const FLOOR_SLACK: f64 = 0.97;

impl Warning {
    /// Whether the number must not be used: exit code 4.
    pub fn is_hard(&self) -> bool {
        matches!(self, Self::Throttled { .. } | Self::FasterThanFloor { .. })
    }
    /// What the card's own readings during sampling tell.
    pub fn from_readings(readings: &[Reading]) -> Vec<Self> {
        let mut warnings = Vec::new();
        let mut hot: Vec<String> =
            readings.iter().filter(|r| r.slowed_by_heat()).flat_map(|r| r.throttle.iter().cloned()).collect();
        hot.sort();
        hot.dedup();
        if !hot.is_empty() {
            warnings.push(Self::Throttled { reasons: hot });
        } else if readings.iter().any(|r| r.throttle.iter().any(|t| t == "power cap")) {
            warnings.push(Self::PowerCapped);
        }
        let mhz: Vec<u32> = readings.iter().filter_map(|r| r.sm_mhz).collect();
        if let (Some(&low), Some(&high)) = (mhz.iter().min(), mhz.iter().max())
            && f64::from(low) < 0.97 * f64::from(high)
        {
            warnings.push(Self::ClockDrift { low_mhz: low, high_mhz: high });
        }
        warnings
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Throttled { reasons } => {
                write!(f, "the card was slowed ({}): let it cool and measure again", reasons.join(", "))
            }
            Self::PowerCapped => {
                f.write_str("the power limit held the clocks: compare only with what ran in alternation with it")
            }
            Self::Noisy { noise, limit } => write!(
                f,
                "spread {:.2} % of the median, above {:.2} %: is something else running? try a longer --min-time",
                noise * 100.0,
                limit * 100.0
            ),
            Self::BelowEventResolution { ns } => {
                write!(f, "{:.1} µs is near what events can tell: use --mode graph", ns / 1e3)
            }
            Self::L2Resident { bytes, l2_bytes } => write!(
                f,
                "{:.1} MB of inputs against {:.0} MB of L2: this may be the cache's speed, not the memory's",
                *bytes as f64 / 1e6,
                *l2_bytes as f64 / 1e6
            ),
            Self::ClockDrift { low_mhz, high_mhz } => {
                write!(f, "the SM clock moved between {low_mhz} and {high_mhz} MHz: repeat, or trust ratios only")
            }
            Self::FasterThanFloor { ns, floor_ns } => write!(
                f,
                "{:.2} µs is under the floor of {:.2} µs: the work was not done, the cost is counted wrongly, or the ceilings \
                 are another card's (`workbench roofline`)",
                ns / 1e3,
                floor_ns / 1e3
            ),
            Self::FewSamples { samples, wanted } => {
                write!(f, "{samples} of {wanted} samples in the time allowed: try a longer --timeout")
            }
            Self::FewSets { sets, wanted } => {
                write!(f, "memory for {sets} of {wanted} input sets: part of the inputs may stay in L2")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_become_warnings() {
        let at = |mhz, throttle: &[&str]| Reading {
            sm_mhz: Some(mhz),
            throttle: throttle.iter().map(|t| t.to_string()).collect(),
            ..Reading::default()
        };
        assert!(Warning::from_readings(&[at(1980, &[]), at(1950, &[])]).is_empty());
        assert_eq!(Warning::from_readings(&[at(1980, &["power cap"])]), [Warning::PowerCapped]);
        let w = Warning::from_readings(&[at(1980, &[]), at(1500, &["thermal, software"])]);
        assert!(w[0].is_hard() && matches!(w[1], Warning::ClockDrift { low_mhz: 1500, .. }));
    }
}
