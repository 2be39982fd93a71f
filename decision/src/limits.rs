//! The rules a schema must keep before it may be read.
//!
//! Client and server call `Schema::validate` with their own limits, so that a bad schema never reaches the network and a
//! schema from elsewhere never reaches the engine.

use std::collections::HashMap;
use std::fmt::Display;

use crate::error::{Place, SchemaError};
use crate::plan;
use crate::question::{Kind, Question};
use crate::schema::{Samples, Schema};
use crate::suggestion::{closest, listed, quoted};

/// What an engine and a route allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    pub max_questions: usize,
    /// Longest id of a question, in bytes: it is set on canvas, sheet and reply again and again.
    pub max_id_bytes: usize,
    /// Most draws of a slot.
    pub max_reads: u32,
    /// Most alternatives of one question; as many as the engine has single-token labels.
    pub max_alternatives: usize,
    pub max_steps: u32,
    pub max_think_tokens: u32,
    pub route: Route,
}

/// Whose rules for ids and order hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// The ids stand on the sheet: no `:` and no newline in them. A question may refer only to earlier ones.
    Chat,
    /// Ids are replaced by neutral ones before they reach the sheet: any non-empty text. Order has no meaning.
    Systemone,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_questions: 64,
            max_id_bytes: 1024,
            max_reads: 32,
            max_alternatives: 26,
            max_steps: 8,
            max_think_tokens: 4096,
            route: Route::Chat,
        }
    }
}

impl Schema {
    /// Checks values, names and references. The first mistake is reported.
    pub fn validate(&self, limits: &Limits) -> Result<(), SchemaError> {
        self.check_settings(limits)?;
        let count = self.questions.len();
        if count == 0 {
            return Err(bad_setting(
                "questions",
                "[]",
                "there is nothing to decide",
                "give at least one question",
            ));
        }
        if count > limits.max_questions {
            let why = format!("one decision takes at most {} questions", limits.max_questions);
            return Err(bad_setting(
                "questions",
                format!("a list of {count}"),
                &why,
                "split it into several decisions",
            ));
        }
        check_ids(&self.questions, limits)?;
        for question in &self.questions {
            check_alternatives(question, limits.max_alternatives)?;
        }
        self.check_ask()?;
        plan::check_references(self, limits.route == Route::Chat)?;
        self.check_conditions()
    }

    fn check_settings(&self, limits: &Limits) -> Result<(), SchemaError> {
        let samples = match self.samples {
            Samples::Fixed(count) => count,
            Samples::Auto => 1,
        };
        let mut ranges = vec![
            ("samples", samples, 1, limits.max_reads),
            ("auto_max", self.auto_max, 1, limits.max_reads),
            ("steps", self.steps, 1, limits.max_steps),
            ("think", self.think, 0, limits.max_think_tokens),
        ];
        ranges.extend(self.chunk_rows.map(|rows| ("chunk_rows", rows, 1, u32::MAX)));
        for (key, value, least, most) in ranges {
            if value < least {
                return Err(bad_setting(key, value, &format!("the least is {least}"), "use a larger number"));
            }
            if value > most {
                return Err(bad_setting(key, value, &format!("the most is {most}"), "use a smaller number"));
            }
        }
        let threshold = self.auto_threshold_nats;
        if !threshold.is_finite() || threshold < 0.0 {
            let hint = "use a number of nats such as 0.1";
            return Err(bad_setting("auto_threshold", threshold, "an entropy is never below 0", hint));
        }
        Ok(())
    }

    fn check_ask(&self) -> Result<(), SchemaError> {
        let Some(ask) = &self.ask else { return Ok(()) };
        if ask.is_empty() {
            return Err(bad_setting(
                "ask",
                "[]",
                "nothing would be asked",
                "name a question, or leave \"ask\" out",
            ));
        }
        match first_duplicate(ask.iter().map(String::as_str)) {
            None => Ok(()),
            Some((_, again)) => {
                Err(bad_setting("ask", quoted(&ask[again]), "the id is listed twice", "list every id once"))
            }
        }
    }

    /// Conditions must name possible answers; otherwise the question could never be asked. Ids are known to exist.
    fn check_conditions(&self) -> Result<(), SchemaError> {
        let by_id: HashMap<&str, &Question> =
            self.questions.iter().map(|question| (question.id.as_str(), question)).collect();
        for question in &self.questions {
            for (id, wanted) in &question.ask_if {
                let Some(other) = by_id.get(id.as_str()) else { continue };
                let names = other.answer_names();
                if wanted.is_empty() {
                    let why = format!("no answer of {} is listed, so it would never be asked", quoted(id));
                    let hint = format!("list one or more of {}", listed(names));
                    return Err(bad(question, "ask_if", format!("{{{}: []}}", quoted(id)), why, hint));
                }
                if let Some(answer) = wanted.iter().find(|answer| !names.contains(&answer.as_str())) {
                    let why = format!("{} can never have this answer", quoted(id));
                    return Err(bad(question, "ask_if", quoted(answer), why, answer_hint(other, answer)));
                }
            }
        }
        Ok(())
    }
}

fn check_ids(questions: &[Question], limits: &Limits) -> Result<(), SchemaError> {
    let route = limits.route;
    for (index, question) in questions.iter().enumerate() {
        let id = question.id.as_str();
        let empty = if route == Route::Chat { id.trim().is_empty() } else { id.is_empty() };
        if empty {
            return Err(SchemaError::InvalidValue {
                place: Place::QuestionNumber(index + 1),
                key: "id",
                value: quoted(id),
                why: "an id cannot be empty: the answer is reported under it".to_owned(),
                hint: "give the question a short name".into(),
            });
        }
        if id.len() > limits.max_id_bytes {
            return Err(SchemaError::InvalidValue {
                place: Place::QuestionNumber(index + 1),
                key: "id",
                value: quoted(id),
                why: format!("it has {} bytes, and an id has at most {}", id.len(), limits.max_id_bytes),
                hint: "give the question a short name, and say what is asked in \"instructions\"".into(),
            });
        }
        if route == Route::Chat && id.contains([':', '\n', '\r']) {
            let why = "an id cannot hold a colon or a line break: it is set before a colon on a line of the answer template";
            let hint = format!("write {}", quoted(&id.replace([':', '\n', '\r'], "_")));
            return Err(bad(question, "id", quoted(id), why, hint));
        }
    }
    match first_duplicate(questions.iter().map(|question| question.id.as_str())) {
        None => Ok(()),
        Some((first, again)) => {
            let why = format!("questions number {} and {} both have it", first + 1, again + 1);
            Err(bad(
                &questions[again],
                "id",
                quoted(&questions[again].id),
                why,
                "give every question an id of its own",
            ))
        }
    }
}

fn check_alternatives(question: &Question, most: usize) -> Result<(), SchemaError> {
    let (key, noun) = match question.kind {
        Kind::Boolean { .. } => return Ok(()),
        Kind::Choice { .. } => ("options", "option"),
        Kind::Score { .. } => ("levels", "level"),
    };
    let names = question.answer_names();
    let count = names.len();
    if count < 2 {
        let why = format!("a {} needs at least two alternatives", question.kind.type_name());
        let hint = format!("add another {noun}, or remove the question");
        return Err(bad(question, key, format!("a list of {count}"), why, hint));
    }
    if count > most {
        let why = format!("this engine has labels for at most {most} alternatives");
        let hint = format!("merge or remove {key}, or ask in two steps: first the group, then the {noun}");
        return Err(bad(question, key, format!("a list of {count}"), why, hint));
    }
    if let Some(index) = names.iter().position(|name| name.trim().is_empty()) {
        let why = format!("{noun} number {} has no name", index + 1);
        return Err(bad(question, key, quoted(names[index]), why, format!("name the {noun}")));
    }
    match first_duplicate(names.iter().copied()) {
        None => Ok(()),
        Some((first, again)) => {
            let why = format!("{key} number {} and {} have the same name", first + 1, again + 1);
            Err(bad(question, key, quoted(names[again]), why, "rename or remove one of them"))
        }
    }
}

/// What to write instead of an answer that does not exist.
fn answer_hint(question: &Question, answer: &str) -> String {
    let names = question.answer_names();
    let meant = match (&question.kind, answer) {
        (Kind::Boolean { .. }, "true") => Some("yes"),
        (Kind::Boolean { .. }, "false") => Some("no"),
        _ => closest(answer, names.iter().copied()),
    };
    match meant {
        Some(name) => format!("write {}", quoted(name)),
        None => format!("its answers are {}", listed(names)),
    }
}

/// Indices of the first name that comes again and of its repetition.
fn first_duplicate<'a>(names: impl Iterator<Item = &'a str>) -> Option<(usize, usize)> {
    let mut seen = HashMap::new();
    names.enumerate().find_map(|(index, name)| seen.insert(name, index).map(|first| (first, index)))
}

fn bad(
    question: &Question,
    key: &'static str,
    value: impl Into<String>,
    why: impl Into<String>,
    hint: impl Into<Box<str>>,
) -> SchemaError {
    SchemaError::InvalidValue {
        place: Place::Question(question.id.clone()),
        key,
        value: value.into(),
        why: why.into(),
        hint: hint.into(),
    }
}

fn bad_setting(key: &'static str, value: impl Display, why: &str, hint: &str) -> SchemaError {
    let (place, value) = (Place::Schema, value.to_string());
    SchemaError::InvalidValue { place, key, value, why: why.to_owned(), hint: hint.into() }
}
