//! Every environment variable the client reads, and the one place that reads them.
//!
//! `settings` and `output::style` take an [`Environment`] instead of looking at the process, so that their rules can be
//! tested without touching global state. An empty variable counts as unset.

use std::collections::HashMap;

/// Base URL of the server, up to and including `/v1`.
pub const URL: &str = "DGEM_URL";
/// Model name sent with every request.
pub const MODEL: &str = "DGEM_MODEL";
/// Total deadline of one request: seconds, or a number with `ms`, `s` or `m`.
pub const TIMEOUT: &str = "DGEM_TIMEOUT";
/// Bearer token.
pub const TOKEN: &str = "DGEM_TOKEN";
/// File that holds the bearer token.
pub const TOKEN_FILE: &str = "DGEM_TOKEN_FILE";
/// Folder with templates.
pub const TEMPLATES: &str = "DGEM_TEMPLATES";
/// Any value switches colour off (<https://no-color.org>).
pub const NO_COLOR: &str = "NO_COLOR";

const ALL: [&str; 7] = [URL, MODEL, TIMEOUT, TOKEN, TOKEN_FILE, TEMPLATES, NO_COLOR];

/// A snapshot of the variables above.
#[derive(Clone, Default)]
pub struct Environment {
    values: HashMap<&'static str, String>,
}

impl Environment {
    /// Reads the process environment. A value that is not UTF-8 is treated as unset.
    pub fn from_process() -> Self {
        Self::from_lookup(|name| std::env::var(name).ok())
    }

    /// Builds a snapshot from any lookup.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Self {
        let values = ALL
            .iter()
            .filter_map(|&name| lookup(name).filter(|value| !value.is_empty()).map(|value| (name, value)))
            .collect();
        Self { values }
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }
}

// Written by hand because a derived one would print the token.
impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.values.keys()).finish()
    }
}
