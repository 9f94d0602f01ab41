//! Where a gap between prediction and measurement comes from.

pub mod floors;
pub mod forecast;
pub mod occupancy;
pub mod quantisation;
pub mod redo;
pub mod sealed;
pub mod shapes;
pub mod step;
pub mod waterfall;
