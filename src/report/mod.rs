//! Reports: one model, rendered as text, HTML, Markdown, JSON and CSV.

pub mod calibration_plot;
pub mod html;
pub mod step;
pub mod step_files;
pub mod step_page;
pub mod text;
pub mod timeline;
