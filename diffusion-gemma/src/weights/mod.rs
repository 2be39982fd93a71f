//! Weights on disk: the formats that are read, the one that is written, and what getting from one to another costs.
//!
//! `checkpoint.rs` opens a folder of any format and hands out matrices (`stored.rs`) whose rows `codec.rs` decodes;
//! `repack.rs` brings them into a form that is computed in, and `report.rs` says what that cost. Used by `load.rs`.

mod checkpoint;
mod codec;
mod encode;
mod inventory;
mod manifest;
mod nvfp4;
mod pack;
mod quantize;
mod repack;
mod report;
mod safetensors;
mod stored;
pub(crate) mod tensors;

pub(crate) use checkpoint::Checkpoint;
pub use inventory::{Inventory, Listing};
pub use manifest::{BLOB, MANIFEST};
pub use pack::is_pack;
pub use quantize::{Profile, quantize};
pub(crate) use repack::{blocks, nearest};
pub use report::{Class, Deviation, Report, Row};
pub use stored::Encoding;
pub(crate) use stored::{Fault, Stored};
pub use tensors::{TensorShape, check, of_model};
