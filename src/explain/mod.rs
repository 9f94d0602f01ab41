//! Where a gap between prediction and measurement comes from.

pub mod occupancy;
pub mod step;
pub mod waterfall;
