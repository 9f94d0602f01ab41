//! `cuptiGetVersion` counted API revisions up to CUDA 12.9 and has told the release since 13.0; this is the release.

use std::fmt;

/// A CUPTI release, comparable: `Version::of(22) == Version { major: 12, minor: 4 }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
}

impl Version {
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }
    /// From the number that `cuptiGetVersion` returns. A revision between two known ones takes the older release, so that a
    /// field is read only where it certainly exists.
    pub const fn of(api: u32) -> Self {
        match api {
            130_000.. => Self::new(api / 10_000, api / 100 % 100),
            27.. => Self::new(12, 9),
            26 => Self::new(12, 8),
            24..=25 => Self::new(12, 6),
            22..=23 => Self::new(12, 4),
            18..=21 => Self::new(12, 1),
            _ => Self::new(11, 0),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_revisions() {
        assert_eq!(Version::of(130_001), Version::new(13, 0));
        assert_eq!(Version::of(130_400), Version::new(13, 4));
        assert_eq!(Version::of(28), Version::new(12, 9));
        assert_eq!(Version::of(22), Version::new(12, 4));
        assert_eq!(Version::of(23), Version::new(12, 4));
        assert!(Version::of(17) < Version::new(12, 1));
    }
}
