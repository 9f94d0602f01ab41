//! Units that must never mix: integer nanoseconds on one clock, bytes, floating-point operations.
//!
//! GB is 1e9 bytes and GiB is 2^30; a byte count prints as one or the other by name, never by habit.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Neg, Sub, SubAssign};

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident($repr:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $repr);

        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }
        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }
        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                self.0 += other.0;
            }
        }
        impl SubAssign for $name {
            fn sub_assign(&mut self, other: Self) {
                self.0 -= other.0;
            }
        }
        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
                Self(iter.map(|v| v.0).sum())
            }
        }
    };
}

quantity!(
    /// A time or a duration in integer nanoseconds.
    Nanos(i64)
);
quantity!(
    /// A size in bytes.
    Bytes(u64)
);
quantity!(
    /// A count of floating-point operations (a multiply-add is two).
    Flops(u64)
);

impl Neg for Nanos {
    type Output = Self;
    fn neg(self) -> Self {
        Self(-self.0)
    }
}

impl Nanos {
    /// Microseconds, for display and for arithmetic on rates only.
    pub fn micros(self) -> f64 {
        self.0 as f64 / 1e3
    }
    /// Rounds a floating-point number of nanoseconds to the nearest integer.
    pub fn from_f64(ns: f64) -> Self {
        Self(ns.round() as i64)
    }
}

impl fmt::Display for Nanos {
    /// Three decimals of a microsecond, so nothing is rounded away: `12.345 µs`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:.3} µs", self.micros()))
    }
}

impl Bytes {
    /// Decimal gigabytes (1e9).
    pub fn gb(self) -> f64 {
        self.0 as f64 / 1e9
    }
    /// Binary gibibytes (2^30).
    pub fn gib(self) -> f64 {
        self.0 as f64 / (1u64 << 30) as f64
    }
    /// Bytes over a time, in GB/s; infinite for a time of zero.
    pub fn per(self, time: Nanos) -> f64 {
        self.0 as f64 / time.0 as f64
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let b = self.0 as f64;
        let text = match self.0 {
            0..=999 => format!("{} B", self.0),
            1_000..=999_999 => format!("{:.2} kB", b / 1e3),
            1_000_000..=999_999_999 => format!("{:.2} MB", b / 1e6),
            _ => format!("{:.3} GB", b / 1e9),
        };
        f.pad(&text)
    }
}

impl Flops {
    /// Operations over a time, in TFLOP/s.
    pub fn per(self, time: Nanos) -> f64 {
        self.0 as f64 / time.0 as f64 / 1e3
    }
}

impl fmt::Display for Flops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let v = self.0 as f64;
        let text = match self.0 {
            0..=999_999 => format!("{} FLOP", self.0),
            1_000_000..=999_999_999 => format!("{:.2} MFLOP", v / 1e6),
            1_000_000_000..=999_999_999_999 => format!("{:.2} GFLOP", v / 1e9),
            _ => format!("{:.2} TFLOP", v / 1e12),
        };
        f.pad(&text)
    }
}

/// Where a shown number comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provenance {
    /// Measured here, now.
    Measured,
    /// Measured elsewhere, in a committed run.
    Recorded,
    /// Computed from other numbers shown.
    Derived,
    /// Taken from a named source.
    Cited,
    /// Taken on trust, to be replaced.
    Assumed,
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Measured => "measured",
            Self::Recorded => "recorded",
            Self::Derived => "derived",
            Self::Cited => "cited",
            Self::Assumed => "assumed",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gb_and_gib_differ() {
        let b = Bytes(1 << 30);
        assert_eq!(b.gib(), 1.0);
        assert!((b.gb() - 1.073_741_824).abs() < 1e-12);
        assert_eq!(b.to_string(), "1.074 GB");
    }

    #[test]
    fn rates() {
        assert_eq!(Bytes(4_580).per(Nanos(1)), 4_580.0);
        assert_eq!(Flops(2_000).per(Nanos(1)), 2.0);
        assert_eq!(Nanos(12_345).to_string(), "12.345 µs");
    }
}
