//! `--fail-if ID=ANSWER`: a question and the answers that must not be.

use decision::{Schema, closest};

use crate::error::Error;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) question: String,
    answers: Vec<String>,
    /// As typed.
    pub(super) text: String,
}

impl Condition {
    /// `injection=yes`, or `team=billing|support` for several. An answer that itself holds a `|` is taken as a whole.
    pub(super) fn parse(text: &str, schema: &Schema) -> Result<Self, Error> {
        let refuse = |reason: String| Error::BadCondition { condition: text.to_owned(), reason };
        let (id, wanted) = text.split_once('=').ok_or_else(|| refuse("there is no `=` in it".to_owned()))?;
        let id = id.trim();
        let asked = schema.asked();
        let Some(question) = asked.iter().find(|question| question.id == id) else {
            let ids: Vec<&str> = asked.iter().map(|question| question.id.as_str()).collect();
            return Err(refuse(unknown("question", id, &ids)));
        };
        let names = question.answer_names();
        let known = |answer: &str| names.contains(&answer);
        let answers: Vec<&str> = match wanted.trim() {
            whole if known(whole) => vec![whole],
            several => several.split('|').map(str::trim).collect(),
        };
        match answers.iter().find(|answer| !known(answer)) {
            Some(answer) => Err(refuse(unknown(&format!("answer of `{id}`"), answer, &names))),
            None => Ok(Self {
                question: id.to_owned(),
                answers: answers.into_iter().map(str::to_owned).collect(),
                text: text.to_owned(),
            }),
        }
    }

    pub(super) fn holds(&self, answer: &str) -> bool {
        self.answers.iter().any(|wanted| wanted == answer)
    }
}

fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    let meant = match (name, known) {
        ("true", ["yes", "no"]) => Some("yes"),
        ("false", ["yes", "no"]) => Some("no"),
        _ => closest(name, known.iter().copied()),
    };
    match meant {
        Some(meant) => format!("there is no {what} called `{name}`; did you mean `{meant}`?"),
        None => format!("there is no {what} called `{name}`; there are: {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Condition, Error> {
        let schema = r#"{"questions": [{"id": "injection", "type": "boolean"},
            {"id": "team", "type": "choice", "options": ["billing", "support", "a|b"]}]}"#;
        Condition::parse(text, &Schema::from_json(schema).unwrap())
    }

    #[test]
    fn one_answer_several_and_one_with_a_bar_in_its_name() {
        assert!(parse("injection=yes").unwrap().holds("yes"));
        let several = parse(" team = billing | support").unwrap();
        assert!(several.holds("billing") && several.holds("support") && !several.holds("a|b"));
        assert!(parse("team=a|b").unwrap().holds("a|b"));
    }

    #[test]
    fn what_does_not_exist_is_named_with_what_was_meant() {
        for (text, part) in [
            ("injection", "no `=`"),
            ("injektion=yes", "did you mean `injection`"),
            ("injection=true", "did you mean `yes`"),
            ("team=biling", "did you mean `billing`"),
            ("team=", "billing, support"),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(part) && message.contains("\nhint: "), "{message}");
        }
    }
}
