//! Predict the number, measure the number, explain the gap: GPU kernels and whole LLM decode steps.
//!
//! Everything hangs on one value, the [`plan`]: it is predicted ([`roofline`]), run ([`run`]) and explained
//! ([`profile`], [`explain`]). See `docs/architecture.md`.

#[path = "../kernels/mod.rs"]
pub mod kernels;

pub mod cli;
pub mod error;
pub mod explain;
pub mod files;
pub mod launch;
pub mod notebook;
pub mod op;
pub mod plan;
pub mod profile;
pub mod report;
pub mod roofline;
pub mod run;
pub mod stats;
pub mod toolchain;
pub mod units;
