//! Every behaviour test of this crate in one binary: one link instead of many. A file is one subject.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod common;
mod damaged_checkpoints;
mod demo_model;
mod fast_path;
mod forms;
mod generation;
mod nvfp4;
mod packs;
mod parity;
mod quantize;
mod text;
