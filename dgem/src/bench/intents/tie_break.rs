//! The tie-break: the most probable intents of the first read are asked about once more.

use decision::{Answer, Question};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::super::decider::Decider;
use super::super::record::Record;
use super::super::sheet::Sheet;
use super::{INTENT, Intents, OUT_OF_SCOPE, Plan};
use crate::error::Error;
use crate::grade::Judged;
use crate::overrides::Overrides;
use crate::state::State;
use crate::template::Template;
use crate::variables::Variables;

/// What the tie-break did; kept in the record.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Second {
    pub(super) finalists: Vec<String>,
    pub(super) answer: String,
    pub(super) confidence: f64,
    pub(super) accurate: bool,
}

impl Intents {
    /// Asks about the most probable intents of the first read. Without a usable answer the first stands.
    pub(super) async fn look_again<D: Decider>(
        &self,
        plan: &Plan,
        (template, overrides): &(Template, Overrides),
        judged: &Judged,
        first: &Answer,
        decider: &D,
        record: &mut Record,
    ) -> Result<Option<Second>, Error> {
        let finalists = finalists(first, self.finalists);
        let variables = Map::from_iter([
            ("text".to_owned(), json!(plan.text)),
            ("options".to_owned(), described(&plan.sheet, &finalists)),
            ("first_guess".to_owned(), json!(first.name())),
        ]);
        let request = template.request_with_state(&Variables::from_map(variables))?;
        let mut schema = request.schema;
        overrides.apply(&mut schema);
        let answered = decider.decide(&schema, &State { text: request.state, images: Vec::new() }).await?;
        record.took(&answered.decided);
        let answer = answered.verdict.rows.iter().find_map(|row| row.answer());
        Ok(answer.map(|answer| Second {
            accurate: judged.possible && answer.name() == judged.expected,
            answer: answer.name().to_owned(),
            confidence: answer.confidence,
            finalists,
        }))
    }
}

/// The most probable answers, at least two, in the order of the question; and "out of scope", which is always worth a look.
fn finalists(first: &Answer, most: usize) -> Vec<String> {
    let mut places: Vec<usize> = (0..first.probabilities.len()).collect();
    // A stable sort: of equals the earlier ones stay.
    places.sort_by(|left, right| first.probabilities[*right].total_cmp(&first.probabilities[*left]));
    places.truncate(most.max(2));
    places.extend(first.probabilities.get_index_of(OUT_OF_SCOPE));
    places.sort_unstable();
    places.dedup();
    places
        .into_iter()
        .filter_map(|place| first.probabilities.get_index(place))
        .map(|(name, _)| name.clone())
        .collect()
}

/// The options of the first question with these names, as a template takes them.
fn described(sheet: &Sheet, names: &[String]) -> Value {
    let intent = |question: &&Question| question.id == INTENT;
    let Some(question) = sheet.schema.questions.iter().find(intent) else { return json!(names) };
    let decision::Kind::Choice { options } = &question.kind else { return json!(names) };
    let of = |name: &String| {
        let description = options.iter().find(|option| option.name == *name)?.description.as_ref();
        Some(match description {
            Some(description) => json!({"name": name, "description": description}),
            None => json!({"name": name}),
        })
    };
    names.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finalists_are_the_most_probable_in_the_order_of_the_question() {
        let answer: Answer = serde_json::from_str(
            r#"{"type": "choice", "probabilities": {"a": 0.1, "b": 0.4, "c": 0.1, "d": 0.35, "oos": 0.05}}"#,
        )
        .unwrap();
        assert_eq!(finalists(&answer, 2), ["b", "d", "oos"]);
        assert_eq!(finalists(&answer, 0), ["b", "d", "oos"]);
        // Of a and c, which are equal, the earlier one.
        assert_eq!(finalists(&answer, 3), ["a", "b", "d", "oos"]);
        assert_eq!(finalists(&answer, 99).len(), 5);
    }
}
