//! The end of the process. `exit` and a return from `main` run our handler; `_exit`, a fatal signal and `kill -9` do not,
//! and then the periodic flush has left all but the last moments in the file.

use crate::{PATIENCE, SESSION};
use std::panic::catch_unwind;
use std::sync::{OnceLock, TryLockError};
use std::time::{Duration, Instant};

static OWNER: OnceLock<u32> = OnceLock::new();

/// Arranges for the recording to be closed when the process exits.
pub fn at_exit() {
    OWNER.get_or_init(std::process::id);
    // SAFETY: the handler is a plain function that does not unwind; this library is never unloaded.
    unsafe { libc::atexit(handler) };
}

extern "C" fn handler() {
    let _ = catch_unwind(|| {
        // A fork's child runs its parent's handlers; the recording is not the child's.
        if OWNER.get() != Some(&std::process::id()) {
            return;
        }
        // The timer may be at work on it, and must not hold up the exit for ever.
        let deadline = Instant::now() + PATIENCE;
        let session = loop {
            match SESSION.try_lock() {
                Ok(mut session) => break session.take(),
                Err(TryLockError::Poisoned(session)) => break session.into_inner().take(),
                Err(TryLockError::WouldBlock) if Instant::now() > deadline => break None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        if let Some(session) = session {
            session.stop(false, PATIENCE);
        }
    });
}
