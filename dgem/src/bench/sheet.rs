//! From a template and the variables of a row to what is asked, with the right answers beside it. No server needed.

use std::path::Path;

use decision::Schema;
use indexmap::IndexMap;
use serde_json::{Map, Value};

use super::decider::Decider;
use super::hash::sha256;
use super::record::Record;
use crate::asking::Answered;
use crate::error::Error;
use crate::grade::{expected_text, position};
use crate::manner::Manner;
use crate::overrides::Overrides;
use crate::state::State;
use crate::template::{Catalogue, Template, client_limits};
use crate::variables::Variables;

/// One decision with known answers.
#[derive(Clone, Debug)]
pub struct Sheet {
    /// Name of the template; none where the row itself holds the question.
    pub template: Option<String>,
    pub schema: Schema,
    pub state: State,
    /// Question id → right answer, as the dataset says it.
    pub expected: IndexMap<String, String>,
}

/// The templates of a run, each loaded once.
#[derive(Debug, Default)]
pub struct Templates {
    catalogue: Catalogue,
    overrides: Overrides,
    /// What `--permute` says.
    orders: Option<usize>,
    readings: IndexMap<String, Vec<Manner>>,
    loaded: IndexMap<String, Template>,
    /// Right answers that the questions do not have: faults of the dataset.
    impossible: Vec<String>,
}

impl Templates {
    pub fn new(catalogue: Catalogue, overrides: Overrides, orders: Option<usize>) -> Self {
        Self { catalogue, overrides, orders, ..Self::default() }
    }

    /// The template filled in. Errors: the template, the variables, or a right answer to a question that is not asked.
    pub fn sheet(
        &mut self,
        case: &str,
        name: &str,
        variables: Map<String, Value>,
        expected: &Map<String, Value>,
    ) -> Result<Sheet, Error> {
        let template = self.template(name)?;
        let request = template.request_with_state(&Variables::from_map(variables))?;
        let mut schema = request.schema;
        self.read_as_told(&mut schema);
        schema.validate(&client_limits()).map_err(|cause| Error::schema(template.path(), cause))?;
        let manner = Manner::of(&schema, self.orders);
        let manners = self.readings.entry(name.to_owned()).or_default();
        if !manners.contains(&manner) {
            manners.push(manner);
        }
        let right = self.expected(case, name, &schema, expected)?;
        let state = State { text: request.state, images: Vec::new() };
        Ok(Sheet { template: Some(name.to_owned()), schema, state, expected: right })
    }

    /// The template of this name, loaded once.
    fn template(&mut self, name: &str) -> Result<Template, Error> {
        if let Some(template) = self.loaded.get(name) {
            return Ok(template.clone());
        }
        let template = self.load(name)?;
        self.loaded.insert(name.to_owned(), template.clone());
        Ok(template)
    }

    /// For sheets that are made while a case is measured.
    pub fn with_overrides(&mut self, name: &str) -> Result<(Template, Overrides), Error> {
        Ok((self.template(name)?, self.overrides.clone()))
    }

    /// What the flags say about the reading.
    pub fn read_as_told(&self, schema: &mut Schema) {
        self.overrides.apply(schema);
    }

    /// The right answers as text. Errors: one to a question that is not asked. `name`: what asks.
    pub fn expected(
        &mut self,
        case: &str,
        name: &str,
        schema: &Schema,
        expected: &Map<String, Value>,
    ) -> Result<IndexMap<String, String>, Error> {
        let mut right = IndexMap::new();
        for (id, value) in expected {
            let Some(question) = schema.questions.iter().find(|question| question.id == *id) else {
                let reason = format!("case `{case}` expects an answer to `{id}`, which {name} does not ask");
                return Err(Error::DatasetFault { path: name.into(), reason });
            };
            let text = expected_text(value);
            if position(question, &text).is_none() {
                self.impossible.push(format!("case `{case}` expects `{text}`, which `{id}` does not allow"));
            }
            right.insert(id.clone(), text);
        }
        Ok(right)
    }

    /// Datasets name the files of this repository; elsewhere the same policies are known by their names.
    fn load(&self, name: &str) -> Result<Template, Error> {
        match name.strip_prefix("templates/") {
            Some(plain) if !Path::new(name).exists() => {
                self.catalogue.load(Path::new(plain)).or_else(|_| self.catalogue.load(Path::new(name)))
            }
            _ => self.catalogue.load(Path::new(name)),
        }
    }

    /// Name → SHA-256 of the source.
    pub fn hashes(&self) -> IndexMap<String, String> {
        let hash =
            |(name, template): (&String, &Template)| (name.clone(), sha256(template.source().as_bytes()));
        self.loaded.iter().map(hash).collect()
    }

    /// Name → the manners in which it is read.
    pub fn readings(&self) -> &IndexMap<String, Vec<Manner>> {
        &self.readings
    }

    /// Faults of the dataset that make a case impossible to get right.
    pub fn impossible(&self) -> &[String] {
        &self.impossible
    }
}

impl Sheet {
    /// Asks it, and writes time and judgement into the record. What is left to the suite is `accurate`.
    pub async fn ask<D: Decider>(&self, decider: &D, record: &mut Record) -> Result<Answered<'_>, Error> {
        record.template.clone_from(&self.template);
        record.expect(self);
        let answered = decider.decide(&self.schema, &self.state).await?;
        record.took(&answered.decided);
        record.judge(self, &answered.verdict);
        Ok(answered)
    }
}
