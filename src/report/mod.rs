//! Reports: one model, rendered as text, HTML, Markdown, JSON and CSV.

pub mod step;
pub mod text;
