//! What makes one benchmark different from the others.

use std::future::Future;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::dataset::BuiltIn;
use super::decider::Decider;
use super::receipt::Origin;
use super::record::Record;
use super::report::Section;
use super::sheet::{Sheet, Templates};
use crate::error::Error;

/// By what a case is named and grouped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Label {
    pub id: String,
    pub category: String,
    /// How hard it is said to be; empty where the dataset does not say.
    pub tier: String,
}

impl Label {
    pub fn new(id: &str, category: &str, tier: &str) -> Self {
        Self { id: id.to_owned(), category: category.to_owned(), tier: tier.to_owned() }
    }
}

/// Keys of a receipt from a JSON object: what was not measured is left out.
pub(super) fn keys(object: Value) -> Map<String, Value> {
    match object {
        Value::Object(map) => map.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        _ => Map::new(),
    }
}

/// One benchmark. It holds the flags of its own, and no state of a run: the figures are computed from records, which may come from
/// a receipt.
pub trait Suite {
    /// A line of the dataset.
    type Row: DeserializeOwned;
    /// A case with everything done that needs no server.
    type Plan;
    /// By which a receipt names it, and the name of the command.
    const NAME: &'static str;

    /// What is asked where the user names no file.
    fn built_in(&self) -> BuiltIn;

    fn label(&self, row: &Self::Row) -> Label;

    /// Errors end the run before anything is sent.
    fn plan(&self, row: Self::Row, templates: &mut Templates) -> Result<Self::Plan, Error>;

    /// What is asked once, without counting, before the clock runs.
    fn warm_up<'p>(&self, plan: &'p Self::Plan) -> Option<&'p Sheet>;

    /// Asks about one case and writes what came into the record: [`Record::took`], [`Record::judge`], and `accurate`.
    fn measure<D: Decider>(
        &self,
        plan: &Self::Plan,
        decider: &D,
        record: &mut Record,
    ) -> impl Future<Output = Result<(), Error>>;

    /// Settings of its own, for the receipt.
    fn settings(&self) -> Map<String, Value> {
        Map::new()
    }

    /// Settings of the figures alone: a replay chooses them anew.
    fn figure_settings(&self) -> Map<String, Value> {
        Map::new()
    }

    /// Errors: what it already holds of an earlier run does not fit this one. Before anything is sent.
    fn fits(&self, _now: &Origin) -> Result<(), Error> {
        Ok(())
    }

    /// Keys of its own on the top level of the receipt. A figure that was not measured is left out.
    fn figures(&self, records: &[Record]) -> Map<String, Value>;

    /// Keys of its own in a case of the receipt, made from the rest of the record.
    fn case_keys(&self, _record: &Record) -> Map<String, Value> {
        Map::new()
    }

    /// What its report shows beyond the usual.
    fn sections(&self, _records: &[Record]) -> Vec<Section> {
        Vec::new()
    }
}
