//! When a run over many rows ends early, because every further row would fail as the last one did. `batch` and `bench` ask this.

use crate::error::Error;
use crate::exit::Exit;

/// So many rows without a single success mean that the server is not there at all.
const HOPELESS: u64 = 20;

/// `worked`, `failed`: rows so far, the one with this error among them.
pub(crate) fn ends_run(error: &Error, worked: u64, failed: u64) -> bool {
    match error.exit() {
        // It does not fit the template, the model or the reading: of all rows.
        _ if matches!(error, Error::BadCalibration { .. }) => true,
        Exit::Auth => true,
        Exit::Unavailable => worked == 0 && failed >= HOPELESS,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_key_ends_a_run_at_once_and_an_absent_server_after_a_while() {
        let refused = |status| Error::Status {
            url: String::new(),
            status,
            message: String::new(),
            hint: String::new(),
        };
        assert!(ends_run(&refused(401), 99, 1));
        assert!(ends_run(&refused(503), 0, HOPELESS) && !ends_run(&refused(503), 0, HOPELESS - 1));
        assert!(!ends_run(&refused(503), 1, 99) && !ends_run(&refused(400), 0, 99));
    }
}
