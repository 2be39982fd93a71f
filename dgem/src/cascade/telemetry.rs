//! What the cascade did, for the `cascade` key of the JSON document.

use decision::Answer;
use serde::Serialize;

#[derive(Debug, Serialize)]
pub struct Telemetry {
    pub(super) mode: &'static str,
    pub(super) threshold: f64,
    pub(super) threshold_unit: &'static str,
    pub(super) prior: &'static str,
    /// The models that really answered, by the servers' own names.
    pub(super) stage1_model: Option<String>,
    pub(super) stage2_model: Option<String>,
    /// The model that was asked for.
    pub(super) stage2_requested: Option<String>,
    pub(super) questions_total: usize,
    pub(super) escalated: usize,
    /// Questions whose answer is now the second model's.
    pub(super) replaced: usize,
    /// The second request alone.
    pub(super) latency_ms: f64,
    /// Why some or all of the escalated questions keep their first answer.
    pub error: Option<String>,
    pub(super) questions: Vec<Escalated>,
}

/// One question that went to the second model.
#[derive(Debug, Serialize)]
pub(super) struct Escalated {
    pub(super) id: String,
    /// `entropy`, `missing` or `invalid`.
    pub(super) reason: &'static str,
    pub(super) stage1: Option<Stage>,
    pub(super) stage2: Option<Stage>,
    /// `stage1` or `stage2`.
    pub(super) kept: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

/// What one model said.
#[derive(Debug, Serialize)]
pub(super) struct Stage {
    pub(super) value: String,
    pub(super) confidence: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) entropy: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hesitation: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) explanation: Option<String>,
}

impl From<&Answer> for Stage {
    fn from(answer: &Answer) -> Self {
        Self {
            value: answer.name().to_owned(),
            confidence: answer.confidence,
            entropy: Some(answer.entropy_nats),
            hesitation: Some(answer.hesitation),
            explanation: None,
        }
    }
}

impl Telemetry {
    /// Questions that went to the second model.
    pub(crate) fn escalated(&self) -> usize {
        self.escalated
    }

    /// Questions whose answer is now the second model's.
    pub(crate) fn replaced(&self) -> usize {
        self.replaced
    }

    /// The second model, by its server's own name.
    pub(crate) fn second_model(&self) -> Option<&str> {
        self.stage2_model.as_deref()
    }

    /// Time of the second request.
    pub(crate) fn latency_ms(&self) -> f64 {
        self.latency_ms
    }

    /// The questions for which the second model's reply was of no use.
    pub(super) fn unusable(&self) -> Option<String> {
        let reasons: Vec<String> = self
            .questions
            .iter()
            .filter_map(|entry| Some(format!("`{}`: {}", entry.id, entry.error.as_ref()?)))
            .collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }
}
