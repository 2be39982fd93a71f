//! Many decisions with one template: rows come in, one JSON line a row goes out.
//!
//! The walk of a row: [`rows`] reads it, [`feeder`] renders it on a thread of its own, [`run`] keeps as many rows in flight as
//! [`concurrency`] allows, `deciding` decides each of them as `dgem decide` would, [`record`] makes the line, [`sink`] writes it. [`tally`] and [`reasons`] count, [`report`] compares with the expected
//! answers. `commands::batch` gives all of them their settings.

mod concurrency;
mod feeder;
mod latency;
mod progress;
mod reasons;
mod record;
mod report;
mod rows;
mod run;
mod shard;
mod sink;
mod tally;

pub use feeder::Feeder;
pub use progress::Progress;
pub use reasons::Reasons;
pub use report::Report;
pub use rows::Rows;
pub use run::{Ended, Run, Stop};
pub use shard::Shard;
pub use sink::{Done, Sink};
pub use tally::Tally;
