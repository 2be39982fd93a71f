//! A calibration: one temperature for each type of question, fitted on labelled answers to one template by one model.
//!
//! `dgem calibrate fit` writes the file, `--calibration` of `dgem decide` and `dgem batch` applies it as the last step, `dgem calibrate verify` looks whether
//! it still holds. It is refused for another template, another model or another manner of reading: a temperature says nothing about those.

use std::path::{Path, PathBuf};

use decision::Schema;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::asking::Answered;
use crate::bench::sha256;
use crate::capped;
use crate::cascade;
use crate::error::Error;
use crate::foreign::visible;
use crate::manner::Manner;
use crate::template::Template;
use crate::verdict::{Outcome, Row};

/// Of the form described here.
pub const SCHEMA_VERSION: u32 = 2;
/// Temperatures that make sense.
const MOST: f64 = 20.0;

/// What the file holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    pub schema_version: u32,
    /// Name, for people.
    pub template: String,
    /// Of the template's source.
    pub template_sha256: String,
    /// By the server's own name.
    pub model: String,
    pub reading: Manner,
    /// RFC 3339, UTC.
    pub fitted_at: String,
    /// What it was fitted on.
    pub fitted_on: String,
    /// Type of question → temperature.
    pub temperatures: IndexMap<String, Fitted>,
}

#[derive(Deserialize)]
struct Form {
    schema_version: u32,
}

/// One temperature with what it did to the answers that it was fitted on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fitted {
    pub temperature: f64,
    pub answers: u64,
    pub nll_before: f64,
    pub nll_after: f64,
    pub ece_before: f64,
    pub ece_after: f64,
    /// Every answer at the temperature that the others ask for; absent where there are too few.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ece_held_out: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nll_held_out: Option<f64>,
}

/// What was applied, with what the model itself had said.
#[derive(Debug, Serialize)]
pub struct Applied {
    pub file: String,
    pub temperatures: IndexMap<String, f64>,
    /// Question id → before.
    pub raw: IndexMap<String, Raw>,
}

#[derive(Debug, Serialize)]
pub struct Raw {
    pub confidence: f64,
    pub entropy: f64,
    pub hesitation: f64,
}

impl Calibration {
    pub fn load(path: &Path) -> Result<Self, Error> {
        let refuse = |reason: String| Error::BadCalibration { path: path.to_owned(), reason };
        let bytes =
            capped::read_file(path, capped::SETTINGS_BYTES).map_err(|cause| refuse(cause.to_string()))?;
        let form: Form = serde_json::from_slice(&bytes).map_err(|cause| refuse(cause.to_string()))?;
        if form.schema_version != SCHEMA_VERSION {
            let older = if form.schema_version < SCHEMA_VERSION {
                "; it does not say how the answers were read"
            } else {
                ""
            };
            let form = form.schema_version;
            return Err(refuse(format!(
                "it has the form {form}, and this program knows {SCHEMA_VERSION}{older}"
            )));
        }
        let calibration: Self = serde_json::from_slice(&bytes).map_err(|cause| refuse(cause.to_string()))?;
        for (name, fitted) in &calibration.temperatures {
            if !["boolean", "choice", "score"].contains(&name.as_str()) {
                return Err(refuse(format!("`{}` is no type of question", visible(name))));
            }
            if !(fitted.temperature > 0.0 && fitted.temperature <= MOST) {
                let value = fitted.temperature;
                return Err(refuse(format!("the temperature {value} is not above 0 and at most {MOST}")));
            }
        }
        Ok(calibration)
    }

    /// The same for one template. Errors: it was fitted on another.
    pub fn load_for(path: &Path, template: &Template) -> Result<Self, Error> {
        let calibration = Self::load(path)?;
        calibration.fits_template(path, &sha256(template.source().as_bytes()))?;
        Ok(calibration)
    }

    /// Where it is kept: beside the template.
    pub fn beside(template: &Path) -> PathBuf {
        let name = template.file_name().unwrap_or_default().to_string_lossy();
        let plain = name.strip_suffix(".json.tmpl").unwrap_or(&name);
        template.with_file_name(format!("{plain}.calibration.json"))
    }

    fn fits_template(&self, path: &Path, sha256: &str) -> Result<(), Error> {
        if self.template_sha256 == sha256 {
            return Ok(());
        }
        let reason = format!(
            "it was fitted on the template `{}` as it was then (sha256 {}…), and this one is another (sha256 {}…)",
            visible(&self.template),
            self.template_sha256.chars().take(12).collect::<String>(),
            sha256.chars().take(12).collect::<String>()
        );
        Err(Error::BadCalibration { path: path.to_owned(), reason })
    }

    /// Errors: it was fitted on answers that were read in another manner.
    pub fn fits_reading(&self, path: &Path, now: &Manner) -> Result<(), Error> {
        let Some(difference) = self.reading.difference(now) else { return Ok(()) };
        let reason =
            format!("it was fitted on answers that were read in another manner: {}", visible(&difference));
        Err(Error::BadCalibration { path: path.to_owned(), reason })
    }

    /// Errors: another model answered, or one that has no name.
    pub fn fits_model(&self, path: &Path, model: Option<&str>) -> Result<(), Error> {
        if model == Some(self.model.as_str()) {
            return Ok(());
        }
        let answered =
            model.map_or("a model without a name".to_owned(), |model| format!("`{}`", visible(model)));
        let reason =
            format!("it was fitted on the model `{}`, and {answered} answered", visible(&self.model));
        Err(Error::BadCalibration { path: path.to_owned(), reason })
    }

    /// Brings every answer of the first model to its temperature. Which answer is given never changes. Errors: it is another model.
    pub fn apply(&self, path: &Path, schema: &Schema, answered: &mut Answered<'_>) -> Result<Applied, Error> {
        let verdict = &mut answered.verdict;
        let first =
            |row: &Row<'_>| row.answer().is_some_and(|answer| !cascade::is_second(answer.source.as_deref()));
        if verdict.rows.iter().any(first) {
            self.fits_model(path, answered.decided.reply.model.as_deref())?;
        }
        let mut raw = IndexMap::new();
        for row in &mut verdict.rows {
            let Outcome::Answered(answer) = &mut row.outcome else { continue };
            let question = schema.questions.iter().find(|question| question.id == row.id);
            let (Some(fitted), Some(question)) = (self.temperatures.get(row.type_name), question) else {
                continue;
            };
            // What the second model of a cascade states has nothing to do with the first one's figures.
            if cascade::is_second(answer.source.as_deref()) {
                continue;
            }
            let (confidence, entropy, hesitation) =
                (answer.confidence, answer.entropy_nats, answer.hesitation);
            raw.insert(row.id.to_owned(), Raw { confidence, entropy, hesitation });
            *answer = answer.at_temperature(fitted.temperature, question.alternatives());
        }
        let temperatures =
            self.temperatures.iter().map(|(name, fitted)| (name.clone(), fitted.temperature)).collect();
        Ok(Applied { file: path.display().to_string(), temperatures, raw })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lies_beside_the_template() {
        for (template, file) in
            [("templates/a.json.tmpl", "templates/a.calibration.json"), ("x", "x.calibration.json")]
        {
            assert_eq!(Calibration::beside(Path::new(template)), Path::new(file));
        }
    }

    #[test]
    fn case_30_temperatures_that_make_no_sense_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.json");
        let with = |name: &str, temperature: &str| {
            let text = format!(
                r#"{{"schema_version": 2, "template": "t", "template_sha256": "0", "model": "m",
                    "reading": {{"samples": "1", "layout": "schema_first", "steps": 1, "think": 0, "permute": 1}}, "fitted_at": "", "fitted_on": "",
                    "temperatures": {{"{name}": {{"temperature": {temperature}, "answers": 1, "nll_before": 0, "nll_after": 0, "ece_before": 0, "ece_after": 0}}}}}}"#
            );
            std::fs::write(&path, text).unwrap();
            Calibration::load(&path)
        };
        assert!(with("choice", "2.5").is_ok());
        for (name, temperature, part) in [
            ("choice", "0", "0 is not above 0"),
            ("choice", "-1", "-1"),
            ("choice", "21", "at most 20"),
            ("vector", "1", "`vector`"),
        ] {
            let message = with(name, temperature).unwrap_err().to_string();
            assert!(message.contains(part) && message.contains("hint:"), "{message}");
        }
        std::fs::write(&path, r#"{"schema_version": 1, "template": "t"}"#).unwrap();
        let message = Calibration::load(&path).unwrap_err().to_string();
        assert!(message.contains("form 1") && message.contains("how the answers were read"), "{message}");
    }
}
