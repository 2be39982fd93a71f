//! `dgem`, the client: typed questions in a template go to a server, probabilities for every allowed answer come back.
//!
//! The walk of one decision: [`cli`] (what was typed) → [`settings`] (what it means) → [`template`] (tera → JSON →
//! validated schema and state) → [`deciding`] → [`client`] (one POST) → [`verdict`] (is this what was asked?) → [`output`] (table or JSON).
//! A question in words goes by `ask` instead of the last three.
//! `commands` strings them together; [`error`] and [`exit`] say how a run can end. The contract with the server is the
//! crate `decision`.

mod ask;
pub mod asking;
pub mod auth;
pub mod batch;
pub mod bench;
pub mod brackets;
mod capped;
pub mod cascade;
pub mod cli;
pub mod client;
mod commands;
pub mod deciding;
pub mod env;
pub mod error;
pub mod exit;
mod fallback;
mod foreign;
pub mod gates;
pub mod grade;
mod guard;
mod hopeless;
pub mod image;
mod limited;
pub mod manner;
mod metered;
pub mod output;
pub mod overrides;
pub mod permute;
pub mod settings;
mod share;
mod signals;
pub mod state;
mod systemone;
pub mod temper;
pub mod template;
pub mod variables;
pub mod verdict;

pub use commands::run;
