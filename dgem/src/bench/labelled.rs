//! Rows with labels for one template, as `dgem batch` reads them: variables, `id`, and `expected_QUESTION`. `dgem calibrate` asks them.

use std::path::PathBuf;

use decision::statistics::Graded;
use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::dataset::BuiltIn;
use super::decider::Decider;
use super::receipt::Origin;
use super::record::Record;
use super::sheet::{Sheet, Templates};
use super::suite::{Label, Suite};
use crate::error::Error;
use crate::temper::Calibration;

/// Names with this beginning hold the right answer to a question.
const EXPECTED: &str = "expected_";

#[derive(Debug)]
pub struct Labelled {
    pub template: String,
    /// That shall hold for the answers, with its file.
    pub calibration: Option<(PathBuf, Calibration)>,
}

#[derive(Debug, Deserialize)]
pub struct Row {
    #[serde(deserialize_with = "text_or_number")]
    id: String,
    #[serde(flatten)]
    columns: Map<String, Value>,
}

/// Ids are texts, or numbers that stand for themselves.
fn text_or_number<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(text) => Ok(text),
        Value::Number(number) => Ok(number.to_string()),
        other => Err(serde::de::Error::custom(format!("the id is {other}, not a text"))),
    }
}

impl Suite for Labelled {
    type Row = Row;
    type Plan = Sheet;
    const NAME: &'static str = "calibrate";

    fn built_in(&self) -> BuiltIn {
        // Its rows are always the user's.
        BuiltIn { path: "none", text: "" }
    }

    fn label(&self, row: &Row) -> Label {
        Label::new(&row.id, "", "")
    }

    fn plan(&self, row: Row, templates: &mut Templates) -> Result<Sheet, Error> {
        let (mut variables, mut expected) = (Map::new(), Map::new());
        for (name, value) in row.columns {
            match name.strip_prefix(EXPECTED) {
                Some(id) => expected.insert(id.to_owned(), value),
                None => variables.insert(name, value),
            };
        }
        templates.sheet(&row.id, &self.template, variables, &expected)
    }

    fn fits(&self, now: &Origin) -> Result<(), Error> {
        let Some((path, calibration)) = &self.calibration else { return Ok(()) };
        now.readings.values().flatten().try_for_each(|manner| calibration.fits_reading(path, manner))
    }

    fn warm_up<'p>(&self, _: &'p Sheet) -> Option<&'p Sheet> {
        None
    }

    async fn measure<D: Decider>(&self, plan: &Sheet, decider: &D, record: &mut Record) -> Result<(), Error> {
        plan.ask(decider, record).await?;
        record.accurate = record.all_correct(plan);
        Ok(())
    }

    fn figures(&self, _: &[Record]) -> Map<String, Value> {
        Map::new()
    }
}

/// The answers with a known right one: type of question → case id and answer.
pub fn graded_by_type<'a>(
    records: impl IntoIterator<Item = &'a Record>,
) -> IndexMap<String, Vec<(String, Graded)>> {
    let mut by_type: IndexMap<String, Vec<(String, Graded)>> = IndexMap::new();
    for record in records {
        for judged in record.answers.values() {
            if let Some(graded) = judged.graded() {
                by_type.entry(judged.kind.clone()).or_default().push((record.id.clone(), graded));
            }
        }
    }
    by_type
}
