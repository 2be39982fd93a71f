//! `dgemma-server quantize`: a checkpoint of any format to a pack, with the error of every class of tensor.

use std::path::Path;
use std::time::Instant;

use diffusion_gemma::weights::{self, Profile};

use super::{print, remark, tenths};
use crate::error::Error;

/// Prints the report of the conversion.
pub fn run(source: &Path, target: &Path, profile: Profile) -> Result<(), Error> {
    let started = Instant::now();
    let report = weights::quantize(source, target, profile, &mut tenths("written"))?;
    remark(format_args!(
        "{} holds the pack, {:.1} s; the errors below are of all its weights against {}",
        target.display(),
        started.elapsed().as_secs_f64(),
        source.display()
    ));
    print(report)
}
