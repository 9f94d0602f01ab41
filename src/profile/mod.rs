//! From a capture to an account: CUPTI sessions and importers make a [`trace::Trace`]; the ledger closes it to 0 ns.

pub mod captured;
pub mod compare;
pub mod defects;
pub mod export;
pub mod foreign;
pub mod gaps;
pub mod import;
pub mod launch_cost;
pub mod ledger;
pub mod native;
pub mod probe;
pub mod session;
pub mod steps;
pub mod synth;
pub mod timeline;
pub mod trace;
