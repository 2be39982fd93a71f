//! The functions of templates that differ from tera's own: `range` is bounded, `get_env` is gone.

use std::collections::HashMap;

use serde_json::{Value, json};
use tera::{Error, Result, Tera};

/// Most items of one `range`.
const MOST_ITEMS: u64 = 100_000;

/// Registers both.
pub(super) fn register(engine: &mut Tera) {
    engine.register_function("range", range);
    // A template from elsewhere must not be able to send this machine's environment to a server.
    engine.register_function("get_env", |_: &HashMap<String, Value>| -> Result<Value> {
        Err(Error::msg("templates cannot read the environment; pass the value with -v"))
    });
}

/// `range(end=…, start=0, step_by=1)`, as tera has it, but refused before it fills the memory.
fn range(arguments: &HashMap<String, Value>) -> Result<Value> {
    let number = |name: &str, default: Option<u64>| match arguments.get(name) {
        Some(value) => value.as_u64().ok_or_else(|| {
            Error::msg(format!("`range` takes whole numbers of at least 0; {name} is {value}"))
        }),
        None => default.ok_or_else(|| Error::msg(format!("`range` needs the argument `{name}`"))),
    };
    let (start, end, step) = (number("start", Some(0))?, number("end", None)?, number("step_by", Some(1))?);
    if step == 0 || start > end {
        return Err(Error::msg(format!(
            "`range` from {start} to {end} by {step} never ends; step_by must be at least 1 and start no larger than end"
        )));
    }
    let items = (end - start).div_ceil(step);
    if items > MOST_ITEMS {
        return Err(Error::msg(format!("`range` of {items} items; at most {MOST_ITEMS} are allowed")));
    }
    Ok((0..items).map(|index| json!(start + index * step)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(arguments: &Value) -> Result<Value> {
        range(&arguments.as_object().unwrap().clone().into_iter().collect())
    }

    #[test]
    fn a_range_is_that_of_tera_up_to_its_limit() {
        assert_eq!(call(&json!({"end": 3})).unwrap(), json!([0, 1, 2]));
        assert_eq!(call(&json!({"start": 1, "end": 6, "step_by": 2})).unwrap(), json!([1, 3, 5]));
        assert_eq!(call(&json!({"start": 2, "end": 2})).unwrap(), json!([]));
        assert_eq!(call(&json!({"end": MOST_ITEMS})).unwrap().as_array().unwrap().len(), 100_000);
        for bad in [
            json!({}),
            json!({"end": MOST_ITEMS + 1}),
            json!({"end": u64::MAX}),
            json!({"end": 3, "step_by": 0}),
            json!({"start": 4, "end": 3}),
            json!({"end": -1}),
            json!({"end": "3"}),
            json!({"end": 1e9}),
        ] {
            assert!(call(&bad).is_err(), "{bad}");
        }
    }
}
