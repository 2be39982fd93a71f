//! `dgem template check`: every file is checked, then one exit code says whether all would run.

use std::io::{self, Write};

use crate::cli::CheckArgs;
use crate::error::Error;
use crate::exit::Exit;
use crate::template::check;
use crate::variables::Variables;

pub(super) fn run(args: &CheckArgs) -> Result<Exit, Error> {
    let given = Variables::gather(&args.variables)?;
    let mut failed = 0;
    let mut out = io::stdout().lock();
    for path in &args.templates {
        match check(path, &given) {
            Ok(warnings) => {
                writeln!(out, "ok     {}", path.display())?;
                warnings.iter().try_for_each(|warning| writeln!(out, "  warning: {warning}"))?;
            }
            Err(error) => {
                failed += 1;
                writeln!(out, "FAILED {}\n  {}", path.display(), error.to_string().replace('\n', "\n  "))?;
            }
        }
    }
    if failed > 0 {
        return Err(Error::CheckFailed { failed, checked: args.templates.len() });
    }
    Ok(Exit::Done)
}
