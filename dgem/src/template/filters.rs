//! The filters that templates have beyond tera's own.
//!
//! | filter | what it gives |
//! |---|---|
//! | `or_default(value=d)` | `d` when the value is undefined, null or blank text; `false` and `0` stay |
//! | `int_or_auto` | JSON text for `samples`: a whole number of at least 1, or `"auto"` |
//! | `as_options` | a list of `{name, description?}` from a list, a name→description map or comma-separated text |
//! | `json_str` | the value escaped for the inside of a JSON string, without quotes |

use std::collections::HashMap;

use serde_json::{Map, Value, json};
use tera::{Error, Result, Tera};

/// Registers all of them.
pub(super) fn register(engine: &mut Tera) {
    engine.register_filter("or_default", or_default);
    engine.register_filter("int_or_auto", int_or_auto);
    engine.register_filter("as_options", as_options);
    engine.register_filter("json_str", json_str);
}

/// Undefined never arrives here: `usage::prepare` puts tera's own `default` in front.
fn or_default(value: &Value, arguments: &HashMap<String, Value>) -> Result<Value> {
    let default = arguments
        .get("value")
        .ok_or_else(|| Error::msg("`or_default` needs an argument: or_default(value=…)"))?;
    let blank = match value {
        Value::Null => true,
        Value::String(text) => text.trim().is_empty(),
        _ => false,
    };
    Ok(if blank { default.clone() } else { value.clone() })
}

fn int_or_auto(value: &Value, _: &HashMap<String, Value>) -> Result<Value> {
    let number = match value {
        Value::String(text) if text.trim() == "auto" => return Ok(json!("\"auto\"")),
        Value::String(text) => text.trim().parse().ok(),
        other => other.as_u64(),
    };
    match number {
        Some(number) if number >= 1 => Ok(json!(number)),
        _ => Err(Error::msg(format!(
            "`int_or_auto` takes a whole number of at least 1, or auto; it got {value}"
        ))),
    }
}

fn as_options(value: &Value, _: &HashMap<String, Value>) -> Result<Value> {
    let options: Vec<Value> = match value {
        Value::String(text) => text
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .map(|name| json!({"name": name}))
            .collect(),
        Value::Array(items) => items.iter().map(option_of).collect::<Result<_>>()?,
        Value::Object(map) => map.iter().map(|(name, description)| described(name, description)).collect(),
        other => {
            return Err(Error::msg(format!(
                "`as_options` takes a list, a map or comma-separated text; it got {other}"
            )));
        }
    };
    if options.is_empty() {
        return Err(Error::msg("`as_options` got an empty list; a choice needs at least two options"));
    }
    Ok(Value::Array(options))
}

fn option_of(item: &Value) -> Result<Value> {
    match item {
        Value::String(name) => Ok(json!({"name": name})),
        Value::Number(number) => Ok(json!({"name": number.to_string()})),
        Value::Object(_) => Ok(item.clone()),
        other => Err(Error::msg(format!("`as_options` cannot make an option of {other}"))),
    }
}

fn described(name: &str, description: &Value) -> Value {
    let mut option = Map::new();
    option.insert("name".to_owned(), json!(name));
    match description {
        Value::Null => {}
        Value::String(text) => drop(option.insert("description".to_owned(), json!(text))),
        other => drop(option.insert("description".to_owned(), json!(other.to_string()))),
    }
    Value::Object(option)
}

#[allow(clippy::unnecessary_wraps, reason = "the signature of a tera filter")]
fn json_str(value: &Value, _: &HashMap<String, Value>) -> Result<Value> {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let quoted = Value::String(text).to_string();
    Ok(Value::String(quoted[1..quoted.len() - 1].to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none() -> HashMap<String, Value> {
        HashMap::new()
    }

    #[test]
    fn case_17_blank_text_gets_the_default_while_false_and_zero_stay() {
        let arguments = HashMap::from([("value".to_owned(), json!("d"))]);
        for (value, expected) in [
            (json!(""), json!("d")),
            (json!(" \n"), json!("d")),
            (json!(null), json!("d")),
            (json!(false), json!(false)),
            (json!(0), json!(0)),
            (json!("x"), json!("x")),
        ] {
            assert_eq!(or_default(&value, &arguments).unwrap(), expected, "{value}");
        }
        assert!(or_default(&json!(""), &none()).is_err());
    }

    #[test]
    fn case_06_samples_become_a_number_or_auto_and_nothing_else() {
        assert_eq!(int_or_auto(&json!("4"), &none()).unwrap(), json!(4));
        assert_eq!(int_or_auto(&json!(2), &none()).unwrap(), json!(2));
        assert_eq!(int_or_auto(&json!("auto"), &none()).unwrap(), json!("\"auto\""));
        for bad in [json!("0"), json!("x"), json!(0), json!(-1), json!(1.5), json!(true), json!("")] {
            assert!(int_or_auto(&bad, &none()).is_err(), "{bad}");
        }
    }

    #[test]
    fn options_keep_their_order_in_every_form() {
        assert_eq!(as_options(&json!("b, a"), &none()).unwrap(), json!([{"name": "b"}, {"name": "a"}]));
        assert_eq!(
            as_options(&json!(["b", {"name": "a", "description": "x"}, 3]), &none()).unwrap(),
            json!([{"name": "b"}, {"name": "a", "description": "x"}, {"name": "3"}])
        );
        let map = as_options(&json!({"z": "last", "a": null, "m": 2}), &none()).unwrap();
        assert_eq!(
            map.to_string(),
            r#"[{"name":"z","description":"last"},{"name":"a"},{"name":"m","description":"2"}]"#
        );
        assert!(
            as_options(&json!(""), &none()).is_err()
                && as_options(&json!([[]]), &none()).is_err()
                && as_options(&json!(1), &none()).is_err()
        );
    }

    #[test]
    fn json_str_escapes_for_the_inside_of_a_string() {
        assert_eq!(
            json_str(&json!("a \"b\"\n\\ 東 <&>"), &none()).unwrap(),
            json!("a \\\"b\\\"\\n\\\\ 東 <&>")
        );
        assert_eq!(json_str(&json!(4), &none()).unwrap(), json!("4"));
    }
}
