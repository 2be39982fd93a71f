//! The program from the outside: the real binary, a recording server on loopback, one test per reported fault (`case_NN`).

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

mod decide;
mod hostile;
mod invalid;
mod support;
mod template;
mod templates;
