//! Whether the program was started with stdout closed (`>&-` in a shell).
//!
//! Rust's runtime opens /dev/null in its place before `main`, and results would vanish there without an error. So the look
//! happens earlier, where the loader runs the constructors of a program. Linux only: elsewhere nothing is found.

use std::sync::atomic::{AtomicBool, Ordering};

static FOUND: AtomicBool = AtomicBool::new(false);

pub(crate) fn found() -> bool {
    FOUND.load(Ordering::Relaxed)
}

#[cfg(target_os = "linux")]
extern "C" fn look() {
    use std::fs::symlink_metadata;
    // Without /proc there is nothing to tell it by.
    if symlink_metadata("/proc/self/fd").is_ok() && symlink_metadata("/proc/self/fd/1").is_err() {
        FOUND.store(true, Ordering::Relaxed);
    }
}

/// A constructor: the loader calls it once, before the runtime and on the only thread.
#[cfg(target_os = "linux")]
#[allow(
    unsafe_code,
    reason = "the linker is told to put a function pointer where the loader looks for constructors"
)]
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = look;
