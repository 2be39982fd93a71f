//! The program's allocator: the system's, with a budget for threads that run what somebody else wrote.
//!
//! A template or a drawing can ask for any amount of memory, and what reads them has no limits of its own. `limited` gives its
//! thread a budget with [`start`]; an allocation beyond it never returns, and the waiting side learns why. Neither does the next
//! one of a thread that nobody waits for any more. All other threads pay one comparison per allocation.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, OnceCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[global_allocator]
static ALLOCATOR: Metered = Metered;

/// What a thread without a budget has left.
const UNLIMITED: i64 = i64::MAX;

thread_local! {
    /// Bytes this thread may still allocate. No destructor, so that it can be read at any time of a thread's life.
    static LEFT: Cell<i64> = const { Cell::new(UNLIMITED) };
    static WATCHED: OnceCell<Arc<Watched>> = const { OnceCell::new() };
}

/// What a thread with a budget and the one that waits for it tell each other.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    /// The thread wanted more than it may have.
    pub(crate) exceeded: AtomicBool,
    /// Nobody waits for its result.
    pub(crate) abandoned: AtomicBool,
}

/// From here on the current thread may allocate `bytes` more than it frees. When it wants more, `exceeded` becomes true and the
/// thread stops for good: an allocator must not unwind, and without the memory there is no way on.
pub(crate) fn start(bytes: u64, watched: Arc<Watched>) {
    WATCHED.with(|cell| drop(cell.set(watched)));
    LEFT.set(i64::try_from(bytes).unwrap_or(UNLIMITED));
}

/// Lifts the budget of the current thread.
pub(crate) fn stop() {
    LEFT.set(UNLIMITED);
}

struct Metered;

fn charge(bytes: usize) {
    let left = LEFT.get();
    if left != UNLIMITED {
        let left = left.saturating_sub_unsigned(bytes as u64);
        if left < 0 || watched(|watched| watched.abandoned.load(Ordering::Relaxed)) == Some(true) {
            halt();
        }
        LEFT.set(left);
    }
}

fn refund(bytes: usize) {
    let left = LEFT.get();
    if left != UNLIMITED {
        // One below the mark: what was allocated before the start may be freed after it.
        LEFT.set(left.saturating_add_unsigned(bytes as u64).min(UNLIMITED - 1));
    }
}

/// Nothing at the end of a thread, when its values are gone already.
fn watched<T>(look: impl FnOnce(&Watched) -> T) -> Option<T> {
    WATCHED.try_with(|cell| cell.get().map(|watched| look(watched))).ok().flatten()
}

#[cold]
fn halt() -> ! {
    stop();
    watched(|watched| watched.exceeded.store(true, Ordering::Release));
    loop {
        std::thread::park();
    }
}

#[allow(
    unsafe_code,
    reason = "an allocator is an unsafe trait; every call is passed on unchanged to the system's"
)]
// SAFETY: the contract of every method is that of `System`, to which it passes its arguments. `charge` and `refund` neither
// allocate nor unwind.
unsafe impl GlobalAlloc for Metered {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        charge(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        charge(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) };
        refund(layout.size());
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // Both may exist for a moment.
        charge(new_size);
        let moved = unsafe { System.realloc(pointer, layout, new_size) };
        refund(layout.size());
        moved
    }
}
