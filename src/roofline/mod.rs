//! What a machine can do, and what a plan should therefore cost. Pure: no device is touched.

pub mod calibrate;
pub mod ceilings;
pub mod cited;
pub mod coordinates;
pub mod figure;
pub mod machine;
pub mod nearby;
pub mod plot;
pub mod predict;
pub mod store;

pub use ceilings::{Ceilings, Floor};
pub use predict::{Calibration, Prediction};
