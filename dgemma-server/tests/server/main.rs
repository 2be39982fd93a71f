//! Every behaviour test of this crate in one binary: one link instead of many. A file is one subject.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod cases;
mod common;
mod connections;
mod decisions;
mod errors;
mod native;
mod openapi;
mod operation;
mod program;
mod scheduler;
mod serving;
mod systemone;
