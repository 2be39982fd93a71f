//! Runs code of others so that a panic inside it (tera has a few, for numbers at the edge of their range) becomes an error. Called
//! by `limited` and by the thread that reads the rows of a batch.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// The result of `run`, or the message of its panic. What `run` was writing must not be used after that.
pub(crate) fn without_panic<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            // A guarded panic is told as an error, once.
            if !GUARDED.get() {
                usual(info);
            }
        }));
    });
    GUARDED.set(true);
    let result = panic::catch_unwind(AssertUnwindSafe(run));
    GUARDED.set(false);
    result.map_err(|cause| {
        let text = cause.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| cause.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "no reason given".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_message_and_a_result_stays() {
        let zero = "".len();
        assert_eq!(without_panic(|| 4), Ok(4));
        assert!(without_panic(|| 1 % zero).unwrap_err().contains("divisor of zero"));
        assert_eq!(without_panic(|| std::panic::panic_any(3_u8)), Err("no reason given".to_owned()));
    }
}
