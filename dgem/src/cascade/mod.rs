//! `--cascade`: the questions that the first model is unsure about go to a second, slower one.
//!
//! `deciding` calls [`Cascade::run`] on a finished verdict. Only the uncertain questions are sent (`uncertain`), as one request
//! (`prompt`, `openai`, `gemini`, or `decided` for a server that makes decisions); every answer is checked against the options. Whatever fails leaves the first model's answers as
//! they are, and [`Telemetry`] says so.

mod decided;
mod gemini;
mod merge;
mod openai;
mod prompt;
mod second;
mod telemetry;
mod threshold;

use std::time::{Duration, Instant};

use decision::{Answer, Question, Schema};

pub(crate) use self::merge::{SOURCE, is_second};
pub(crate) use self::prompt::{Prior, name as prior_name, told};
use self::second::{Doubt, Given, Said, Second};
pub use self::telemetry::Telemetry;
use self::telemetry::{Escalated, Stage};
pub use self::threshold::Threshold;
use crate::asking::{Answered, Asker};
use crate::cli::{CascadeFlags, CascadeMode};
use crate::client::{Decided, Reply, Tally};
use crate::env::Environment;
use crate::error::Error;
use crate::exit::Exit;
use crate::state::State;
use crate::verdict::{Outcome, Row, Verdict};

/// A cascade that was asked for.
#[derive(Debug)]
pub struct Cascade {
    mode: CascadeMode,
    threshold: Threshold,
    prior: Prior,
    second: Second,
}

impl Cascade {
    /// `None` when it is off. Errors: settings that cannot work, so that they cost no request.
    pub fn new(flags: &CascadeFlags, images: bool, environment: &Environment) -> Result<Option<Self>, Error> {
        if flags.cascade == CascadeMode::Off {
            return Ok(None);
        }
        Ok(Some(Self {
            mode: flags.cascade,
            threshold: Threshold::parse(flags.cascade_threshold.as_deref())?,
            prior: flags.cascade_prior,
            second: Second::new(flags, images, environment)?,
        }))
    }

    /// Its settings, for a receipt.
    pub(crate) fn settings(&self) -> serde_json::Value {
        serde_json::json!({"mode": mode(self.mode), "threshold": self.threshold.to_string(), "prior": prompt::name(self.prior),
            "model": self.second.model()})
    }

    /// When the first model gave nothing at all, every question is missing and may go to the second. Mistakes of the user stay
    /// errors.
    pub fn instead_of<'a>(
        &self,
        asker: &Asker,
        schema: &'a Schema,
        error: Error,
    ) -> Result<Answered<'a>, Error> {
        if !matches!(error.exit(), Exit::Unavailable | Exit::Rejected) {
            return Err(error);
        }
        let row = |question: &&'a Question| Row {
            id: question.id.as_str(),
            type_name: question.kind.type_name(),
            outcome: Outcome::Missing,
        };
        let notes = vec![format!("the first model gave no answer: {}", error.headline())];
        let verdict = Verdict { rows: schema.asked().iter().map(row).collect(), notes };
        let url = asker.server().client().settings().endpoint.to_string();
        let reply = Reply::new(serde_json::Map::new(), serde_json::json!({}), None, None);
        let busy = u32::from(matches!(error.status(), Some(429 | 503)));
        let tally = Tally { busy, ..Tally::default() };
        let decided = Decided { reply, wall: Duration::ZERO, url, tally };
        Ok(Answered { decided, verdict })
    }

    /// Asks the second model about what is uncertain, and puts its answers in place.
    pub async fn run(&self, state: &State, schema: &Schema, answered: &mut Answered<'_>) -> Telemetry {
        let asked = schema.asked();
        let escalated: Vec<(&Question, Escalated)> = answered
            .verdict
            .rows
            .iter()
            .filter_map(|row| {
                let question = asked.iter().find(|question| question.id == row.id)?;
                Some((*question, self.uncertain(question, &row.outcome)?))
            })
            .collect();
        let mut telemetry = Telemetry {
            mode: mode(self.mode),
            threshold: self.threshold.value,
            threshold_unit: self.threshold.unit(),
            prior: prompt::name(self.prior),
            stage1_model: answered.decided.reply.model.clone(),
            stage2_requested: self.second.model().map(str::to_owned),
            stage2_model: None,
            questions_total: asked.len(),
            escalated: escalated.len(),
            replaced: 0,
            latency_ms: 0.0,
            error: None,
            questions: Vec::new(),
        };
        if escalated.is_empty() {
            return telemetry;
        }
        let questions: Vec<&Question> = escalated.iter().map(|(question, _)| *question).collect();
        let verdict = &answered.verdict;
        let doubt = Doubt { schema, questions: &questions, verdict, prior: self.prior, state };
        let start = Instant::now();
        let given = self.second.ask(&doubt).await;
        telemetry.latency_ms = (start.elapsed().as_secs_f64() * 1e6).round() / 1e3;
        match given {
            Err(error) => {
                telemetry.error = Some(error.headline());
                telemetry.questions = escalated.into_iter().map(|(_, entry)| entry).collect();
            }
            Ok(reply) => {
                telemetry.stage2_model = reply.model;
                for (question, mut entry) in escalated {
                    let given = reply.answers.get(&question.id).cloned();
                    match given.unwrap_or_else(|| Err("no answer came".to_owned())) {
                        Ok(given) => {
                            entry.stage2 = Some(match given {
                                Given::Said(said) => {
                                    merge::replace(&mut answered.verdict, question, &said);
                                    said.into()
                                }
                                Given::Read(answer, mass) => {
                                    merge::take(answered, &answer, &question.id, mass);
                                    Stage::from(&*answer)
                                }
                            });
                            entry.kept = "stage2";
                            telemetry.replaced += 1;
                        }
                        Err(reason) => entry.error = Some(reason),
                    }
                    telemetry.questions.push(entry);
                }
                telemetry.error = telemetry.unusable();
                merge::apply_conditions(schema, &mut answered.verdict);
            }
        }
        telemetry
    }

    /// Why the question goes to the second model, if it does.
    fn uncertain(&self, question: &Question, outcome: &Outcome) -> Option<Escalated> {
        let (reason, answer): (_, Option<&Answer>) = match outcome {
            Outcome::Skipped(_) => return None,
            Outcome::Missing => ("missing", None),
            Outcome::Invalid(_) => ("invalid", None),
            Outcome::Answered(answer) => {
                let unsure = self.mode == CascadeMode::Entropy && self.threshold.reached(answer);
                (unsure.then_some("entropy")?, Some(answer))
            }
        };
        Some(Escalated {
            id: question.id.clone(),
            reason,
            stage1: answer.map(Stage::from),
            stage2: None,
            kept: "stage1",
            error: None,
        })
    }
}

fn mode(mode: CascadeMode) -> &'static str {
    match mode {
        CascadeMode::Off => "off",
        CascadeMode::Entropy => "entropy",
        CascadeMode::OnMiss => "on-miss",
    }
}

impl From<Said> for Stage {
    fn from(said: Said) -> Self {
        Self {
            value: said.decision,
            confidence: said.confidence,
            entropy: None,
            hesitation: None,
            explanation: said.explanation,
        }
    }
}
