//! The capture's clock beside the host's. CUPTI's Linux default is CLOCK_REALTIME, but that can be stepped and WSL differs,
//! so the pairing is measured and recorded instead of assumed.

use cupti_sys::{Error, Library, call};
use wbtrace::Record;

/// Now, on the clock of the activity records, in ns.
pub fn timestamp(lib: &Library) -> Result<u64, Error> {
    let mut t = 0;
    // SAFETY: writes one u64.
    unsafe { call!(lib, cuptiGetTimestamp(&mut t)) }.map(|()| t)
}

fn host(clock: libc::clockid_t) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(clock, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// CLOCK_REALTIME and CLOCK_MONOTONIC, in ns.
pub fn host_clocks() -> (u64, u64) {
    (host(libc::CLOCK_REALTIME), host(libc::CLOCK_MONOTONIC))
}

/// The three clocks as one record: the tightest of a few tries, each bracketed by two host readings.
pub fn pair(lib: &Library) -> Option<Record> {
    let tries = (0..8).filter_map(|_| {
        let (before, monotonic) = host_clocks();
        let capture = timestamp(lib).ok()?;
        let after = host(libc::CLOCK_REALTIME);
        let width = after.wrapping_sub(before);
        Some((width, Record::Clock { capture, realtime: before.wrapping_add(width / 2), monotonic }))
    });
    tries.min_by_key(|t| t.0).map(|t| t.1)
}
