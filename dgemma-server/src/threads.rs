//! How many threads the model computes with.
//!
//! The tensor library takes the number from its environment, once, and has no other setting. A process cannot safely
//! change its own environment, so `--threads` starts this program anew, in the same process, with the variable set.

use std::io;

/// The variable that the tensor library and its thread pool read.
const VARIABLE: &str = "RAYON_NUM_THREADS";

/// Returns when `wanted` threads are what this process runs with. May replace the process.
pub fn apply(wanted: usize) -> io::Result<()> {
    if std::env::var(VARIABLE).is_ok_and(|value| value == wanted.to_string()) {
        return Ok(());
    }
    restart_with(wanted)
}

#[cfg(unix)]
fn restart_with(wanted: usize) -> io::Result<()> {
    use std::os::unix::process::CommandExt;
    let mut command = std::process::Command::new(std::env::current_exe()?);
    let mut arguments = std::env::args_os();
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    // Returns only if it fails.
    Err(command.args(arguments).env(VARIABLE, wanted.to_string()).exec())
}

#[cfg(not(unix))]
fn restart_with(wanted: usize) -> io::Result<()> {
    let hint =
        format!("on this system, set {VARIABLE}={wanted} in the environment instead of passing --threads");
    Err(io::Error::new(io::ErrorKind::Unsupported, hint))
}

/// Threads the tensor library computes with in this process.
#[must_use]
pub fn in_use() -> usize {
    let named =
        std::env::var(VARIABLE).ok().and_then(|value| value.parse().ok()).filter(|&threads| threads > 0);
    named.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}
