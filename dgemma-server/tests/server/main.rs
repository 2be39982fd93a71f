//! Every behaviour test of this crate in one binary: one link instead of many. A file is one subject.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod cases;
mod chat;
mod common;
mod connections;
mod decisions;
mod download;
mod errors;
mod native;
mod openapi;
mod operation;
mod program;
mod replies;
mod response_format;
mod scheduler;
mod serving;
mod stream;
mod systemone;
mod thinking;
mod tools;
mod weights;
mod wide;
