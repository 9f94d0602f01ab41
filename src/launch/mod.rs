//! See docs/architecture.md.

pub mod image;
