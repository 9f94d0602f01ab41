//! cupti-sys
