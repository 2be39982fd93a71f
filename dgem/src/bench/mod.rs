//! Benchmarks: cases with known answers go to a server, figures and a receipt come back.
//!
//! The walk: [`dataset`] reads the rows; the [`Suite`] turns each into a plan (everything that can fail without a server);
//! [`runner`] measures the plans through a [`Decider`]; every case becomes a [`Record`]; [`receipt`] keeps them on the disk;
//! [`summary`] computes the figures from the records alone, so that a receipt can be looked at again; [`report`] shows them on a
//! terminal and as a page. A suite is one file: what a row asks, when it counts as right, which further figures it has.
//! `commands::bench` strings all of it together.

mod compare;
mod dataset;
mod decider;
pub mod ecotone;
pub mod epistemic;
mod hash;
pub mod intents;
pub mod labelled;
pub mod permutation;
pub mod public_sets;
mod receipt;
mod record;
mod report;
mod runner;
mod sheet;
mod suite;
mod summary;
pub mod triage;

pub use compare::Comparison;
pub use dataset::{BuiltIn, Dataset, Filter};
pub use decider::{Decider, Server, Written};
pub(crate) use hash::{number, sha256};
pub(crate) use receipt::timestamp;
pub use receipt::{DatasetName, Origin, Output, Receipt, SCHEMA_VERSION as RECEIPT_VERSION, WarmUp};
pub use record::Record;
pub use report::{Report, Section, page, text};
pub use runner::{Ran, Run, Stop};
pub use sheet::{Sheet, Templates};
pub use suite::{Label, Suite};
pub use summary::Summary;
