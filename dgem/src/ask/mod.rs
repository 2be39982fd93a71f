//! A question in words, and an answer in words that comes piece by piece.
//!
//! [`Prompt`] becomes the body of a chat completion, [`Reading`] makes [`Part`]s of what the server sends, [`Screen`] shows them,
//! [`Stats`] sums up. `commands::ask` strings them together; the bytes come from `client`.

mod prompt;
mod reading;
mod screen;
mod stats;

pub(crate) use prompt::{Prompt, ROUTE, Wanted};
pub(crate) use reading::{Ended, Fault, Part, Reading, fault};
pub(crate) use screen::{Screen, Terminals};
pub(crate) use stats::Stats;
