//! The JSON form of an answer: written with exactly the keys and the order of the contract, read with tolerance.
//!
//! Other servers leave out what follows from the probabilities (entropy, hesitation, the expected level); it is computed then.
//! Keys that are not ours are passed over.

use indexmap::IndexMap;
use serde::de::Error as _;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::answer::{Answer, AnswerValue, expected_level};
use crate::keys;
use crate::probability::{argmax, entropy_nats, hesitation_over};
use crate::question::{Alternative, Kind, Question};
use crate::tolerance::first_number;

impl Serialize for Answer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", self.type_name())?;
        map.serialize_entry("label", &self.label)?;
        match &self.value {
            AnswerValue::Boolean { .. } => {}
            AnswerValue::Choice { choice } => map.serialize_entry("choice", choice)?,
            AnswerValue::Score { level, score } => {
                map.serialize_entry("level", level)?;
                map.serialize_entry("score", score)?;
            }
        }
        map.serialize_entry("confidence", &self.confidence)?;
        map.serialize_entry("probabilities", &self.probabilities)?;
        if let AnswerValue::Boolean { noul } = self.value {
            map.serialize_entry("noul", &noul)?;
        }
        map.serialize_entry("entropy", &self.entropy_nats)?;
        map.serialize_entry("hesitation", &self.hesitation)?;
        for (key, value) in [("stderr", self.stderr), ("agreement", self.agreement)] {
            if let Some(value) = value {
                map.serialize_entry(key, &value)?;
            }
        }
        if let Some(source) = &self.source {
            map.serialize_entry("source", source)?;
        }
        map.end()
    }
}

/// What a reply may hold; everything but the type can be missing.
#[derive(Deserialize)]
struct AnswerFields {
    #[serde(rename = "type")]
    type_name: String,
    label: Option<String>,
    choice: Option<String>,
    level: Option<String>,
    score: Option<f64>,
    noul: Option<f64>,
    confidence: Option<f64>,
    probabilities: Option<IndexMap<String, f64>>,
    #[serde(default, deserialize_with = "first_number")]
    entropy: Option<f64>,
    hesitation: Option<f64>,
    stderr: Option<f64>,
    agreement: Option<f64>,
    source: Option<String>,
}

impl<'de> Deserialize<'de> for Answer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        AnswerFields::deserialize(deserializer)?.into_answer().map_err(D::Error::custom)
    }
}

impl AnswerFields {
    fn into_answer(mut self) -> Result<Answer, String> {
        let type_name = keys::canonical_type(&self.type_name)
            .ok_or_else(|| format!("answer type {:?} is none of boolean, choice, score", self.type_name))?;
        let probabilities = self.distribution(type_name == "boolean")?;
        // `distribution` never gives an empty map, so there is a largest value.
        let winner = argmax(probabilities.values().copied()).unwrap_or(0);
        let (top_name, top_probability) =
            probabilities.get_index(winner).map_or_else(Default::default, |(name, &p)| (name.clone(), p));
        let label = self.label.take();
        let (value, label) = match type_name {
            "boolean" => {
                let noul = self.noul.unwrap_or_else(|| probabilities.get("yes").copied().unwrap_or(0.0));
                (AnswerValue::Boolean { noul }, label.map_or(top_name, |label| yes_or_no(&label)))
            }
            "choice" => {
                let label = label.unwrap_or_else(|| plain_label(&probabilities, winner, false));
                (AnswerValue::Choice { choice: self.choice.take().unwrap_or(top_name) }, label)
            }
            _ => {
                let label = label.unwrap_or_else(|| plain_label(&probabilities, winner, true));
                let score = self.score.unwrap_or_else(|| expected_level(probabilities.values().copied()));
                (AnswerValue::Score { level: self.level.take().unwrap_or(top_name), score }, label)
            }
        };
        let entropy_nats = self
            .entropy
            .unwrap_or_else(|| entropy_nats(&probabilities.values().copied().collect::<Vec<_>>()));
        Ok(Answer {
            value,
            label,
            confidence: self.confidence.unwrap_or(top_probability),
            entropy_nats,
            hesitation: self.hesitation.unwrap_or_else(|| hesitation_over(entropy_nats, probabilities.len())),
            probabilities,
            stderr: self.stderr,
            agreement: self.agreement,
            source: self.source,
        })
    }

    /// The probabilities, checked; those of a boolean under `yes` and `no`, from `noul` if that is all there is.
    fn distribution(&mut self, boolean: bool) -> Result<IndexMap<String, f64>, String> {
        let given = match (self.probabilities.take(), self.noul) {
            (Some(map), _) => map,
            (None, Some(noul)) if boolean => {
                IndexMap::from([("yes".to_owned(), noul), ("no".to_owned(), 1.0 - noul)])
            }
            (None, _) => return Err("the answer has no probabilities".to_owned()),
        };
        if given.is_empty() {
            return Err("the probabilities of the answer are empty".to_owned());
        }
        if let Some((name, p)) = given.iter().find(|(_, p)| !(-1e-9..=1.0 + 1e-6).contains(*p)) {
            return Err(format!("the probability of {name:?} is {p}, not between 0 and 1"));
        }
        Ok(if boolean { given.into_iter().map(|(name, p)| (yes_or_no(&name), p)).collect() } else { given })
    }
}

/// Servers of the older contract call the answers of a boolean `true` and `false`.
fn yes_or_no(name: &str) -> String {
    match name {
        "true" => "yes",
        "false" => "no",
        other => other,
    }
    .to_owned()
}

/// The label that an answer at this index has by the rules of the contract.
fn plain_label(probabilities: &IndexMap<String, f64>, index: usize, score: bool) -> String {
    let names = probabilities.keys().cloned();
    let kind = if score {
        Kind::Score { levels: names.collect() }
    } else {
        Kind::Choice { options: names.map(|name| Alternative { name, description: None }).collect() }
    };
    let question = Question { kind, ..Question::default() };
    question.labels().into_iter().nth(index).unwrap_or_default()
}
