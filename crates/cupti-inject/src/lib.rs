//! cupti-inject
