//! `dgemma-server verify`: reads a checkpoint through and says whether it is whole and sound.
//!
//! Headers and manifest, names and shapes against config.json, every number finite, tokenizer and chat template usable, and the
//! digests of the download where there was one.

use std::path::Path;

use diffusion_gemma::Config;
use diffusion_gemma::weights::{self, Inventory};

use super::{print, tenths};
use crate::download;
use crate::error::Error;
use crate::read::Text;

/// Prints one line per kind of check; the first fault is the error.
pub fn run(dir: &Path) -> Result<(), Error> {
    let files = download::verify(dir)?;
    let config = Config::from_dir(dir)?;
    let inventory = Inventory::open(dir)?;
    weights::check(&inventory, &config)?;
    Text::from_dir(dir)?;
    let total: u64 = inventory.tensors().map(|one| one.bytes).sum();
    let (mut progress, mut done, mut numbers, mut tensors) = (tenths("read"), 0, 0, 0);
    for one in inventory.tensors() {
        // Integers that nothing reads have no numbers to look at.
        if one.encoding != weights::Encoding::Other {
            numbers += inventory.verify(one.name)?;
        }
        tensors += 1;
        done += one.bytes;
        progress(done, total);
    }
    let files = files.map_or_else(
        || "no list of a download beside it, so no digests to compare with".to_owned(),
        |files| format!("{files} files have the digests of the download"),
    );
    print(format_args!(
        "{}: {}\n{tensors} tensors in the shapes of config.json, {numbers} numbers, all finite\ntokenizer and chat template work\n{files}\n",
        dir.display(),
        inventory.format()
    ))
}
