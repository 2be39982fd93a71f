//! Block diffusion: how canvases of noise become text.
//!
//! [`Generation`] is the state of one reply, without model and without keys and values: it says what goes into the next pass
//! and takes what came out, so that one pass may hold steps of many replies beside prefills and decisions. `rows.rs` is the work
//! over the whole vocabulary in between, [`generate`] the simplest driver. `reference/sampler.rs` is the plain version, and the
//! recorded runs of the reference implementation judge both.

mod canvas;
mod config;
mod driver;
mod generation;
mod noise;
mod rows;

pub use config::GenerationConfig;
pub use driver::{Reply, generate, generate_all};
pub use generation::{Block, Finish, Generation, GenerationStats, Progress};
pub use noise::Noise;
