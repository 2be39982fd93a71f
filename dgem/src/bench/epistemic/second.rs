//! Who looks again at what the first model is unsure of, and what came of it.

use decision::{Answer, Question};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::decider::Decider;
use super::super::record::milliseconds;
use super::super::sheet::Sheet;
use super::right;
use crate::asking::Answered;
use crate::cascade::{Cascade, Prior, Threshold, prior_name, told};
use crate::grade::Judged;
use crate::verdict::Outcome;

/// Who looks again at what the first model is unsure of.
#[derive(Debug)]
pub enum Second {
    /// Another model.
    Other(Box<Cascade>),
    /// The same one, which thinks before it answers.
    Thinking { tokens: u32, threshold: Threshold, prior: Prior },
}

/// What the second model did with a case; kept in the record.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Escalation {
    pub(super) escalated: bool,
    /// The model that answered, if it did.
    #[serde(default)]
    pub(super) model: Option<String>,
    /// Its answer counts in place of the first.
    #[serde(default)]
    pub(super) answer: Option<Judged>,
    #[serde(default)]
    pub(super) accurate: Option<bool>,
    #[serde(default)]
    pub(super) pass2_latency_ms: Option<f64>,
    #[serde(default)]
    pub(super) error: Option<String>,
}

impl Escalation {
    pub(super) fn unfinished() -> Self {
        let error = Some("it was not done within the time of the case".to_owned());
        Self { escalated: true, error, ..Self::default() }
    }
}

impl Second {
    /// For a receipt.
    pub(super) fn settings(&self) -> Value {
        match self {
            Self::Other(cascade) => cascade.settings(),
            Self::Thinking { tokens, threshold, prior } => {
                json!({"mode": "self", "think": tokens, "threshold": threshold.to_string(), "prior": prior_name(*prior)})
            }
        }
    }

    /// Looks at one case again, if the first answer is as unsure as that.
    pub(super) async fn look<D: Decider>(
        &self,
        plan: &Sheet,
        decider: &D,
        answered: &mut Answered<'_>,
    ) -> Escalation {
        let Some(question) = plan.schema.asked().into_iter().next() else { return Escalation::default() };
        match self {
            Self::Other(cascade) => {
                let telemetry = cascade.run(&plan.state, &plan.schema, answered).await;
                if telemetry.escalated() == 0 {
                    return Escalation::default();
                }
                let now = answered.verdict.rows.iter().find(|row| row.id == question.id);
                let judged =
                    now.filter(|_| telemetry.replaced() > 0).map(|row| judge(plan, question, &row.outcome));
                Escalation {
                    escalated: true,
                    model: telemetry.second_model().map(str::to_owned),
                    accurate: judged.as_ref().map(right),
                    answer: judged,
                    pass2_latency_ms: Some(telemetry.latency_ms()),
                    error: telemetry.error.clone(),
                }
            }
            Self::Thinking { tokens, threshold, prior } => {
                let first = answered.verdict.rows.iter().find_map(|row| row.answer().cloned());
                if first.as_ref().is_some_and(|first| !threshold.reached(first)) {
                    return Escalation::default();
                }
                think(plan, question, decider, first.as_ref(), *tokens, *prior).await
            }
        }
    }
}

/// The same question to the same model, which is told what it said and thinks first.
async fn think<D: Decider>(
    plan: &Sheet,
    question: &Question,
    decider: &D,
    first: Option<&Answer>,
    tokens: u32,
    prior: Prior,
) -> Escalation {
    let mut schema = plan.schema.clone();
    schema.think = tokens;
    if let (Some(first), Some(asked)) =
        (first, schema.questions.iter_mut().find(|other| other.id == question.id))
    {
        let instructions = asked.instructions.get_or_insert_default();
        instructions.push_str(&told(prior, first));
    }
    let mut escalation = Escalation { escalated: true, ..Escalation::default() };
    match decider.decide(&schema, &plan.state).await {
        Ok(answered) => {
            let judged = answered.verdict.rows.iter().find(|row| row.id == question.id);
            let judged =
                judged.filter(|row| row.answer().is_some()).map(|row| judge(plan, question, &row.outcome));
            escalation.model = answered.decided.reply.model.clone();
            escalation.accurate = judged.as_ref().map(right);
            escalation.answer = judged;
            escalation.pass2_latency_ms = Some(milliseconds(answered.decided.wall));
        }
        Err(error) => escalation.error = Some(error.headline()),
    }
    escalation
}

fn judge(plan: &Sheet, question: &Question, outcome: &Outcome) -> Judged {
    let expected = plan.expected.get(&question.id).map_or("", String::as_str);
    Judged::new(question, expected, outcome)
}
