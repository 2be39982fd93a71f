//! The metadata comment of a template, read from the source before anything is rendered:
//!
//! ```text
//! {# dgem: {"description": "…", "required": ["ticket"], "sample": {"ticket": "…"}} #}
//! ```
//!
//! All keys are optional; an unknown key is an error, since a typo would silently switch off a check.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::tags::{self, Kind};

/// What the author says about the template.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Metadata {
    /// One sentence for lists.
    pub description: String,
    /// Variables without which rendering is refused.
    pub required: Vec<String>,
    /// A value for every variable that needs one, good enough to try the template.
    pub sample: Map<String, Value>,
    /// The questions are about pictures that come with the request (`-I`).
    pub image: bool,
}

/// What is wrong with the comment, and on which line of the file.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) line: usize,
    pub(super) reason: String,
}

impl Metadata {
    pub(super) fn parse(source: &str) -> Result<Self, Fault> {
        let mut found: Option<Self> = None;
        for tag in tags::scan(source).into_iter().filter(|tag| tag.kind == Kind::Comment) {
            let Some(text) = tag.content.strip_prefix("dgem:") else { continue };
            let line = tags::line_at(source, tag.start);
            if found.is_some() {
                return Err(Fault { line, reason: "there is a second `dgem:` comment".to_owned() });
            }
            let lines_before_json = line_offset(&source[tag.start..tag.end], text);
            let metadata = serde_json::from_str(text).map_err(|cause| Fault {
                line: line + lines_before_json + cause.line().saturating_sub(1),
                reason: without_position(&cause),
            })?;
            found = Some(metadata);
        }
        Ok(found.unwrap_or_default())
    }
}

/// Lines between the start of the tag and the start of the JSON text in it.
fn line_offset(tag: &str, text: &str) -> usize {
    tag.find(text).map_or(0, |offset| tags::line_at(tag, offset) - 1)
}

/// A message of `serde_json` without its own "at line 1 column 2", which counts from the comment's start.
pub(super) fn without_position(cause: &serde_json::Error) -> String {
    let text = cause.to_string();
    text.rsplit_once(" at line ").map_or(text.clone(), |(message, _)| message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_comment_is_read_wherever_it_stands() {
        let metadata = Metadata::parse(
            "{}\n{#- dgem: {\"description\": \"d\", \"required\": [\"a\"],\n \"sample\": {\"a\": \"x\"}} -#}",
        )
        .unwrap();
        assert_eq!(
            (metadata.description.as_str(), metadata.required.len(), metadata.sample["a"].as_str()),
            ("d", 1, Some("x"))
        );
        assert!(Metadata::parse("{# dgem is nice #}{}").unwrap().required.is_empty());
    }

    #[test]
    fn faults_tell_the_line_in_the_file() {
        let fault = Metadata::parse("\n{# dgem: {\n \"requird\": []} #}").unwrap_err();
        assert!(fault.line == 3 && fault.reason.contains("requird"), "{fault:?}");
        let fault = Metadata::parse("{# dgem: {} #}\n{# dgem: {} #}").unwrap_err();
        assert!(fault.line == 2 && fault.reason.contains("second"), "{fault:?}");
    }
}
