//! The names that may stand in a schema: keys, their older spellings, and the type names.
//!
//! One table for the normaliser, the reader and the "did you mean" of an unknown key.

/// Keys of the schema object itself.
pub const SCHEMA_KEYS: &[&str] = &[
    "instructions",
    "questions",
    "samples",
    "auto_threshold",
    "auto_max",
    "steps",
    "think",
    "layout",
    "isolate",
    "hole",
    "seed",
    "ask",
    "chunk_rows",
    "chunk_prompt",
    "sequential",
];

/// Keys of a question. `criteria`, `options` and `levels` belong to one type each.
pub(crate) const QUESTION_KEYS: &[&str] =
    &["id", "type", "instructions", "criteria", "options", "levels", "depends_on", "ask_if", "alone"];

/// Older spelling → key, for any question. Those that depend on the type are in `type_aliases`.
pub(crate) const QUESTION_ALIASES: &[(&str, &str)] =
    &[("name", "id"), ("question", "instructions"), ("prompt", "instructions")];

pub(crate) const OPTION_KEYS: &[&str] = &["name", "description"];

pub(crate) const CRITERIA_KEYS: &[&str] = &["true", "false"];

pub(crate) const CRITERIA_ALIASES: &[(&str, &str)] = &[("yes", "true"), ("no", "false")];

/// Older spelling → key, for the alternatives of a canonical type.
pub(crate) fn type_aliases(type_name: &str) -> &'static [(&'static str, &'static str)] {
    match type_name {
        "choice" => &[("choices", "options"), ("criteria", "options")],
        "score" => &[("items", "levels"), ("criteria", "levels")],
        _ => &[],
    }
}

/// The key that holds the alternatives of a canonical type.
pub(crate) fn alternatives_key(type_name: &str) -> &'static str {
    match type_name {
        "choice" => "options",
        "score" => "levels",
        _ => "criteria",
    }
}

/// The canonical name of a question type; `None` for what is no type.
pub(crate) fn canonical_type(name: &str) -> Option<&'static str> {
    match name {
        "boolean" | "bool" | "noul" => Some("boolean"),
        "choice" => Some("choice"),
        "score" => Some("score"),
        _ => None,
    }
}
