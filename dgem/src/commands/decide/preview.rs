//! `--dry-run` and `--curl`: the request as it would be sent, without sending it and without secrets.

use decision::Schema;
use serde_json::{Value, json};

use crate::cli::Api;
use crate::client::chat_body;
use crate::settings::Settings;
use crate::state::State;
use crate::{fallback, systemone};

/// A JSON document with method, URL, headers and body, or a curl command.
pub(super) fn text(
    settings: &Settings,
    api: Option<Api>,
    schema: &Schema,
    state: &State,
    curl: bool,
) -> String {
    let model = settings.model.as_deref();
    let (route, body) = match api {
        None | Some(Api::Chat) => ("/chat/completions", chat_body(model, schema, state)),
        Some(Api::Systemone) => (systemone::ROUTE, systemone::body(model, schema, state)),
        Some(Api::Openai) => (fallback::ROUTE, fallback::body(model, schema, state)),
    };
    let url = settings.endpoint.route(route);
    if curl {
        return curl_command(&url, settings.sends_a_token(), &String::from_utf8_lossy(&body));
    }
    let mut headers = json!({"content-type": "application/json", "accept": "application/json"});
    if settings.sends_a_token() {
        headers["authorization"] = json!("Bearer ***");
    }
    let mut body: Value = serde_json::from_slice(&body).unwrap_or_default();
    shorten(&mut body, state);
    let request = json!({"method": "POST", "url": url, "headers": headers, "body": body});
    serde_json::to_string_pretty(&request).unwrap_or_default()
}

/// Linux takes 128 KiB in one argument of a program.
const MOST_ARGUMENT_BYTES: usize = 64 << 10;
const END: &str = "END_OF_REQUEST";

/// Runs as it is in a shell in which `DGEM_TOKEN` is set.
fn curl_command(url: &str, token: bool, body: &str) -> String {
    let authorization =
        if token { " \\\n  -H \"Authorization: Bearer $DGEM_TOKEN\"" } else { Default::default() };
    let head =
        format!("curl -sS {} \\\n  -H 'Content-Type: application/json'{authorization} \\\n  ", quoted(url));
    let argument = quoted(body);
    if argument.len() < MOST_ARGUMENT_BYTES {
        return head + "--data-raw " + &argument;
    }
    // JSON has no line breaks of its own here, so that no line of it can be the end mark.
    format!("{head}--data-binary @- <<'{END}'\n{body}\n{END}")
}

/// For a POSIX shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Pictures by their size: nobody reads base64.
fn shorten(value: &mut Value, state: &State) {
    match value {
        Value::String(text) => {
            if let Some(image) = state.images.iter().find(|image| *image.url == **text) {
                *text = image.shown();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| shorten(item, state)),
        Value::Object(map) => map.values_mut().for_each(|item| shorten(item, state)),
        _ => {}
    }
}
