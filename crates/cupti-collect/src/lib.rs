//! From CUPTI's buffers to a recording: one subscription, one pool of buffers, one translation. The workbench uses it around
//! its own decode step; the injected library uses the same in a process that we did not write.
//!
//! CUPTI hands its buffers to plain functions, so a session is the process's: there is one hub (`hub`), at most one
//! [`Collector`] at a time, and nothing is allocated on the thread that launches work while the pool lasts.

mod api;
mod clock;
mod collector;
mod drain;
mod hub;
mod label;
mod machine;
mod names;
mod options;
mod pool;
mod problem;
mod translate;

pub use clock::{host_clocks, timestamp};
pub use collector::{Collector, Outcome, Sink, prepare};
pub use drain::process as process_record;
pub use label::{Label, graph_node_id};
pub use machine::{MachineDevice, driver_version};
pub use options::{Mode, Options, Parts};
pub use problem::Problem;

/// Blocks every signal on the calling thread: a traced program's signals are for its own threads.
pub fn block_signals() {
    // SAFETY: the set is filled before it is used; only this thread's mask changes.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
    }
}

/// The kernel's id of the calling thread, as CUPTI's records give it.
pub fn thread_id() -> u32 {
    // SAFETY: gettid takes nothing and cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}
