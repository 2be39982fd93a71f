//! The program from the outside: the real binary, a recording server on loopback, one test per reported fault (`case_NN`).

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

mod ask;
mod auth;
mod batch;
mod batch_faults;
mod batch_like_decide;
mod bench;
mod bench_ecotone;
mod bench_suites;
mod brackets;
mod calibrate;
mod cascade;
mod decide;
mod decide_failures;
mod decide_output;
mod doctor;
mod exit_codes;
mod gates;
mod help;
mod hostile;
mod images;
mod invalid;
mod permute;
mod plain_server;
mod retry;
mod revision;
mod settings;
mod support;
mod template;
mod templates;
