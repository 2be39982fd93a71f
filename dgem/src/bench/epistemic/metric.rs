//! The metrics: which question of which template each of them reads.

use serde_json::{Map, Value};

use super::super::record::Record;
use super::super::report::{Section, digits, percent};
use super::super::sheet::{Sheet, Templates};
use super::super::summary::{Summary, mean, times};
use super::{Row, is_exact};
use crate::error::Error;

/// Metric, template, question.
const METRICS: [(&str, &str, &str); 15] = [
    ("civil-comments-toxicity-check", "civil_comments_toxicity", "toxic"),
    ("civil-comments-toxicity-rate", "civil_comments_toxicity_rate", "toxicity_rate"),
    ("ms-marco-passage-relevance-check", "ms_marco_relevance", "relevant"),
    ("prompt-injection-check", "prompt_injection", "injection"),
    ("agent-step-drift-check", "agent_step_hijack", "hijacked"),
    ("agent-step-label-select", "agent_step_drift", "drift"),
    ("grounding-claim-support-check", "grounding_claim_check", "supported"),
    ("boolq-passage-answer-check", "boolq_answer", "answer"),
    ("anli-entailment-select", "chaos_nli", "entailment"),
    ("chaos-nli-entailment-select", "chaos_nli", "entailment"),
    ("yelp-review-stars-rate", "yelp_stars", "stars"),
    ("sst5-sentiment-rate", "sst5_sentiment", "sentiment"),
    ("clinc-oos-intent-select", "clinc_oos_intent", "intent"),
    ("go-emotions-emotion-select", "go_emotions_emotion", "emotion"),
    ("banking77-intent-select", "banking77_intent", "intent"),
];

/// The one question of the row's metric, filled in.
pub(super) fn sheet(row: Row, templates: &mut Templates) -> Result<Sheet, Error> {
    let metric = row.metric.strip_prefix("calibration/").unwrap_or(&row.metric);
    let Some((_, template, question)) = METRICS.iter().find(|(name, ..)| *name == metric) else {
        let known: Vec<&str> = METRICS.iter().map(|(name, ..)| *name).collect();
        let reason = format!("case `{}` has the metric `{metric}`; known are {}", row.id, known.join(", "));
        return Err(Error::DatasetFault { path: row.metric.into(), reason });
    };
    let expected: Map<String, Value> = Map::from_iter([((*question).to_owned(), row.expected)]);
    let mut sheet = templates.sheet(&row.id, &format!("calibration/{template}"), row.fields, &expected)?;
    // One metric, one question: what else the template asks would only cost, and escalate.
    sheet.schema.ask = Some(vec![(*question).to_owned()]);
    Ok(sheet)
}

/// The figures of each template.
pub(super) fn by_template(records: &[Record]) -> Section {
    let mut groups: Vec<(&str, Vec<Record>)> = Vec::new();
    for record in records {
        let name = record.template.as_deref().unwrap_or("none");
        match groups.iter_mut().find(|(other, _)| *other == name) {
            Some((_, group)) => group.push(record.clone()),
            None => groups.push((name, vec![record.clone()])),
        }
    }
    let rows = groups.iter().map(|(name, group)| {
        let summary = Summary::of(group);
        let scores = summary.answers_of_all().and_then(|answers| answers.scores.clone());
        let exact = group.iter().filter(|record| is_exact(record)).count();
        vec![
            crate::foreign::visible(name),
            group.len().to_string(),
            percent(summary.all.accuracy()),
            percent(Some(exact as f64 / group.len() as f64)),
            digits(scores.as_ref().map(|s| s.confidence), 3),
            digits(scores.as_ref().map(|s| s.entropy_nats), 4),
            digits(scores.as_ref().map(|s| s.hesitation), 4),
            digits(mean(&times(group, |record| record.wall_time_ms)), 1),
        ]
    });
    let header =
        ["TEMPLATE", "CASES", "ACCURACY", "EXACT", "CONFIDENCE", "H (NATS)", "HESITATION", "WALL MS"];
    Section::table("By template", &header, rows.collect())
        .with_note("Accuracy counts a score as right within one level (levels from 0.0 to 1.0: within 0.25); exact does not.")
}
