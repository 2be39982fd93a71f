//! `dgem bench-calibration`: how well confidence fits accuracy, over 15 metrics in the styles of public data sets, and what a cascade
//! would make of it.
//!
//! Each metric reads one question of its template. The usual figures are always those of the first model; what the second one changes
//! stands in a section and in keys of its own, case by case, so that a receipt answers for every threshold.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use decision::statistics::{Graded, Scores, Temperature, chance_corrected, fold, held_out};
use decision::{Answer, Question};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::dataset::BuiltIn;
use super::decider::Decider;
use super::hash::number;
use super::labelled::graded_by_type;
use super::receipt::{Origin, Receipt};
use super::record::{Record, milliseconds};
use super::report::{Section, digits, percent};
use super::sheet::{Sheet, Templates};
use super::suite::{Label, Suite};
use super::summary::{Summary, mean, times};
use crate::asking::Answered;
use crate::cascade::{Cascade, Prior, Threshold, prior_name, told};
use crate::client::{Decided, Reply, Tally};
use crate::error::Error;
use crate::exit::Exit;
use crate::foreign::visible;
use crate::grade::Judged;
use crate::verdict::{Outcome, Row as VerdictRow, Verdict};

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
/// A score counts as right within one level where levels are whole numbers, and within this where they are shares.
const NEAR_SHARE: f64 = 0.25;
/// Thresholds of the sweep, as shares of the most possible entropy and in nats.
const SWEEP: [(f64, bool); 12] = [
    (0.0, true),
    (0.05, true),
    (0.1, true),
    (0.16, true),
    (0.25, true),
    (0.35, true),
    (0.5, true),
    (0.1, false),
    (0.2, false),
    (0.35, false),
    (0.5, false),
    (0.7, false),
];

/// Who looks again at what the first model is unsure of.
#[derive(Debug)]
pub enum Second {
    /// Another model.
    Other(Box<Cascade>),
    /// The same one, which thinks before it answers.
    Thinking { tokens: u32, threshold: Threshold, prior: Prior },
}

#[derive(Debug)]
pub struct Epistemic {
    pub second: Option<Second>,
    pub first: Option<First>,
}

/// Answers of the first model from a receipt.
#[derive(Debug)]
pub struct First {
    path: PathBuf,
    origin: Origin,
    cases: HashMap<String, Record>,
}

impl First {
    pub fn load(path: &Path) -> Result<Self, Error> {
        let receipt = Receipt::load_for(path, Epistemic::NAME)?;
        let cases = receipt.cases.into_iter().map(|case| (case.id.clone(), case)).collect();
        Ok(Self { path: path.to_owned(), origin: receipt.origin, cases })
    }

    /// Errors: it answered other cases, or other templates.
    fn fits(&self, now: &Origin) -> Result<(), Error> {
        let refuse = |reason: String| Err(Error::BadReceipt { path: self.path.clone(), reason });
        let short = |hash: &str| hash.chars().take(12).collect::<String>();
        let (then, dataset) = (&self.origin.dataset, &now.dataset);
        if then.sha256 != dataset.sha256 {
            return refuse(format!(
                "it is over the cases in {} (sha256 {}…), and this run is over those in {} (sha256 {}…)",
                visible(&then.path),
                short(&then.sha256),
                visible(&dataset.path),
                short(&dataset.sha256)
            ));
        }
        for (name, hash) in &now.templates {
            let told = match self.origin.templates.get(name) {
                Some(other) if other == hash => continue,
                Some(other) => format!("was another one then (sha256 {}…)", short(other)),
                None if self.cases.values().all(|case| case.template.as_ref() != Some(name)) => continue,
                None => "has no hash in it".to_owned(),
            };
            return refuse(format!(
                "the template `{}` {told}, now it has sha256 {}…",
                visible(name),
                short(hash)
            ));
        }
        Ok(())
    }

    /// Who gave these answers, and how.
    fn settings(&self) -> Value {
        let Origin { target_url, target_model, timestamp, dgem_git_revision, seed, settings, .. } =
            &self.origin;
        let read: Map<String, Value> = ["samples", "layout", "think", "permute", "api"]
            .iter()
            .filter_map(|key| Some(((*key).to_owned(), settings.get(*key)?.clone())))
            .collect();
        json!({"receipt": self.path.display().to_string(), "timestamp": timestamp, "dgem_git_revision": dgem_git_revision,
               "target_url": target_url, "target_model": target_model, "seed": seed, "settings": read})
    }
}

#[derive(Debug, Deserialize)]
pub struct Row {
    id: String,
    metric: String,
    #[serde(default)]
    tier: String,
    #[serde(default)]
    category: String,
    fields: Map<String, Value>,
    expected: Value,
}

/// What the second model did with a case; kept in the record.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Escalation {
    escalated: bool,
    /// The model that answered, if it did.
    #[serde(default)]
    model: Option<String>,
    /// Its answer counts in place of the first.
    #[serde(default)]
    answer: Option<Judged>,
    #[serde(default)]
    accurate: Option<bool>,
    #[serde(default)]
    pass2_latency_ms: Option<f64>,
    #[serde(default)]
    error: Option<String>,
}

impl Suite for Epistemic {
    type Row = Row;
    type Plan = Sheet;
    const NAME: &'static str = "bench-calibration";

    fn built_in(&self) -> BuiltIn {
        BuiltIn {
            path: "benchmarks/calibration_suite.jsonl",
            text: include_str!("../../../benchmarks/calibration_suite.jsonl"),
        }
    }

    fn label(&self, row: &Row) -> Label {
        Label { id: row.id.clone(), category: row.category.clone(), tier: row.tier.clone() }
    }

    fn plan(&self, row: Row, templates: &mut Templates) -> Result<Sheet, Error> {
        let metric = row.metric.strip_prefix("calibration/").unwrap_or(&row.metric);
        let Some((_, template, question)) = METRICS.iter().find(|(name, ..)| *name == metric) else {
            let known: Vec<&str> = METRICS.iter().map(|(name, ..)| *name).collect();
            let reason =
                format!("case `{}` has the metric `{metric}`; known are {}", row.id, known.join(", "));
            return Err(Error::DatasetFault { path: row.metric.into(), reason });
        };
        let expected = Map::from_iter([((*question).to_owned(), row.expected)]);
        let mut sheet =
            templates.sheet(&row.id, &format!("calibration/{template}"), row.fields, &expected)?;
        // One metric, one question: what else the template asks would only cost, and escalate.
        sheet.schema.ask = Some(vec![(*question).to_owned()]);
        Ok(sheet)
    }

    fn warm_up<'p>(&self, plan: &'p Sheet) -> Option<&'p Sheet> {
        self.first.is_none().then_some(plan)
    }

    async fn measure<D: Decider>(&self, plan: &Sheet, decider: &D, record: &mut Record) -> Result<(), Error> {
        let known = self.first.as_ref().and_then(|first| known(plan, first, &record.id));
        let (mut answered, failure) = match known {
            Some((first, answered)) => {
                *record = first;
                (answered, None)
            }
            None => match plan.ask(decider, record).await {
                Ok(answered) => (answered, None),
                // A first model that gives nothing is unsure of everything.
                Err(error) if self.second.is_some() && is_passed_on(&error) => {
                    (as_if(plan, Outcome::Missing), Some(error))
                }
                Err(error) => return Err(error),
            },
        };
        record.accurate = record.answers.values().all(right) && !record.answers.is_empty();
        record.settled = failure.is_none();
        if let Some(second) = &self.second {
            // So it stands if the time of the case runs out: only the second model takes time here.
            record.set("escalation", Escalation::unfinished());
            let escalation = second.look(plan, decider, &mut answered).await;
            record.set("escalation", escalation);
        }
        failure.map_or(Ok(()), Err)
    }

    fn settings(&self) -> Map<String, Value> {
        let cascade = match &self.second {
            None => json!("off"),
            Some(Second::Other(cascade)) => cascade.settings(),
            Some(Second::Thinking { tokens, threshold, prior }) => {
                json!({"mode": "self", "think": tokens, "threshold": threshold.to_string(), "prior": prior_name(*prior)})
            }
        };
        let first = self.first.as_ref().map_or(json!("live"), First::settings);
        Map::from_iter([("cascade".to_owned(), cascade), ("pass1".to_owned(), first)])
    }

    fn fits(&self, now: &Origin) -> Result<(), Error> {
        self.first.as_ref().map_or(Ok(()), |first| first.fits(now))
    }

    fn figures(&self, records: &[Record]) -> Map<String, Value> {
        let summary = Summary::of(records);
        let scores = summary.answers_of_all().and_then(|answers| answers.scores.as_ref());
        let all: Vec<Graded> =
            graded_by_type(records).into_values().flatten().map(|(_, graded)| graded).collect();
        let exact = records.iter().filter(|record| is_exact(record));
        let exact = (!records.is_empty()).then(|| exact.count() as f64 / records.len() as f64);
        let chance = summary.answers_of_all().map(|answers| answers.chance);
        let mut figures = json!({
            "total_correct": summary.all.right,
            "overall_accuracy_pct": summary.all.accuracy().map(|share| 100.0 * share),
            "exact_accuracy_pct": exact.map(|share| 100.0 * share),
            "chance_baseline_pct": chance.map(|share| 100.0 * share),
            "chance_corrected_acc_pct": exact.zip(chance).and_then(|(exact, chance)| chance_corrected(exact, chance)).map(|share| 100.0 * share),
            "scored_answers": scores.map(|s| s.count),
            "avg_confidence": scores.map(|s| s.confidence),
            "avg_entropy_nats": scores.map(|s| s.entropy_nats),
            "avg_normalized_entropy": scores.map(|s| s.hesitation),
            "avg_brier_score": scores.map(|s| s.brier),
            "ece_10bin": scores.map(|s| s.ece),
            "ece_equal_mass": scores.map(|s| s.ece_equal_mass),
            "auroc_hesitation_error": scores.and_then(|s| s.auroc),
            "p50_latency_ms": summary.latency.map(|l| l.p50),
            "p95_latency_ms": summary.latency.map(|l| l.p95),
            "avg_wall_time_ms": summary.latency.map(|l| l.mean),
        });
        if let Some(fit) = Temperature::fit(&all) {
            let held_out = out_of_sample(records);
            figures["temperature_fit"] = json!({"temperature": fit.value, "at_bound": fit.at_bound, "ece_raw": fit.before.ece,
                "nll_raw": fit.before.nll, "ece_held_out": held_out.as_ref().map(|s| s.ece), "nll_held_out": held_out.as_ref().map(|s| s.nll)});
        }
        if let Some(cascade) = Combined::of(records) {
            figures["cascade"] = cascade.json();
        }
        figures
            .as_object()
            .cloned()
            .unwrap_or_default()
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .collect()
    }

    fn case_keys(&self, record: &Record) -> Map<String, Value> {
        let Some(judged) = record.answers.values().next() else { return Map::new() };
        let graded = judged.graded();
        let answer = judged.answer.as_ref();
        let json = json!({
            "expected": judged.expected, "actual": judged.said(), "exact": judged.correct,
            "confidence": answer.map(|answer| answer.confidence), "entropy_nats": graded.as_ref().map(|g| decision::entropy_nats(g.probabilities())),
            "normalized_entropy": graded.as_ref().map(Graded::hesitation), "vocab_cardinality": judged.alternatives,
            "chance_baseline": 1.0 / judged.alternatives as f64, "brier_score": graded.as_ref().map(Graded::brier),
        });
        json.as_object()
            .cloned()
            .unwrap_or_default()
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .collect()
    }

    fn sections(&self, records: &[Record]) -> Vec<Section> {
        let mut sections = vec![metrics(records)];
        sections.extend(temperature(records));
        sections.extend(Combined::of(records).map(|combined| combined.section()));
        sections.push(sweep(records));
        sections
    }
}

fn is_exact(record: &Record) -> bool {
    let mut answers = record.answers.values();
    record.error.is_none() && !record.answers.is_empty() && answers.all(|judged| judged.correct)
}

/// Right by the rule of the suite: scores may be a little off.
fn right(judged: &Judged) -> bool {
    if judged.correct || judged.kind != "score" || !judged.possible {
        return judged.correct;
    }
    let said: Option<f64> = judged.answer.as_ref().and_then(|answer| answer.name().parse().ok());
    match (said, judged.expected.parse::<f64>().ok()) {
        (Some(said), Some(expected)) => {
            let whole = said.fract() == 0.0 && expected.fract() == 0.0 && !judged.expected.contains('.');
            (said - expected).abs() <= if whole { 1.0 } else { NEAR_SHARE } + 1e-9
        }
        _ => false,
    }
}

/// The answer that an earlier run has, as if it had just come; `None` where that run has none.
fn known<'a>(plan: &'a Sheet, first: &First, id: &str) -> Option<(Record, Answered<'a>)> {
    let (origin, first) = (&first.origin, first.cases.get(id)?);
    let question = plan.schema.asked().into_iter().next()?;
    let judged = first.answers.get(&question.id).filter(|_| first.error.is_none())?;
    let outcome = Outcome::Answered(judged.answer.clone()?);
    let mut record = first.clone();
    // Judged anew: the labels are those of this dataset.
    let expected = plan.expected.get(&question.id)?;
    record.answers.insert(question.id.clone(), Judged::new(question, expected, &outcome));
    record.more.clear();
    record.model.clone_from(&origin.target_model);
    Some((record, as_if(plan, outcome)))
}

/// Errors at which a second model may still know the answer.
fn is_passed_on(error: &Error) -> bool {
    matches!(error.exit(), Exit::Unavailable | Exit::Rejected)
}

/// A reply with this outcome of the one question.
fn as_if(plan: &Sheet, outcome: Outcome) -> Answered<'_> {
    let asked = plan.schema.asked().into_iter().next();
    let row =
        asked.map(|question| VerdictRow { id: &question.id, type_name: question.kind.type_name(), outcome });
    let rows = row.into_iter().collect();
    let decided = Decided {
        reply: Reply::new(Map::new(), json!({}), None, None),
        wall: std::time::Duration::ZERO,
        url: String::new(),
        tally: Tally::default(),
    };
    Answered { decided, verdict: Verdict { rows, notes: Vec::new() } }
}

impl Escalation {
    fn unfinished() -> Self {
        let error = Some("it was not done within the time of the case".to_owned());
        Self { escalated: true, error, ..Self::default() }
    }
}

impl Second {
    /// Looks at one case again, if the first answer is as unsure as that.
    async fn look<D: Decider>(&self, plan: &Sheet, decider: &D, answered: &mut Answered<'_>) -> Escalation {
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

/// Every answer at the temperature that the other fifths ask for.
fn out_of_sample(records: &[Record]) -> Option<Scores> {
    let folded: Vec<(Graded, usize)> = graded_by_type(records)
        .into_values()
        .flatten()
        .map(|(id, graded)| (graded, fold(number(&id))))
        .collect();
    Scores::of(&held_out(&folded)?)
}

fn temperature(records: &[Record]) -> Option<Section> {
    let all: Vec<Graded> =
        graded_by_type(records).into_values().flatten().map(|(_, graded)| graded).collect();
    let (fit, held_out) = (Temperature::fit(&all)?, out_of_sample(records));
    let bound = if fit.at_bound { ", at the end of the search" } else { "" };
    let rows = vec![
        vec![
            "as read".to_owned(),
            digits(Some(fit.before.ece), 4),
            digits(Some(fit.before.nll), 4),
            digits(Some(fit.before.brier), 4),
        ],
        vec![
            format!("T = {:.3}, fitted on these answers{bound}", fit.value),
            digits(Some(fit.after.ece), 4),
            digits(Some(fit.after.nll), 4),
            digits(Some(fit.after.brier), 4),
        ],
        vec![
            "each at the T of the other four fifths".to_owned(),
            digits(held_out.as_ref().map(|s| s.ece), 4),
            digits(held_out.as_ref().map(|s| s.nll), 4),
            digits(held_out.as_ref().map(|s| s.brier), 4),
        ],
    ];
    let note = "One temperature for all questions. Only the last row says what a temperature does to answers that it has not seen.";
    Some(Section::table("Temperature", &["ANSWERS", "ECE", "NLL", "BRIER"], rows).with_note(note))
}

fn metrics(records: &[Record]) -> Section {
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

/// Both models together.
struct Combined {
    cases: usize,
    escalated: usize,
    replaced: usize,
    first: usize,
    combined: usize,
    first_ms: Option<f64>,
    second_ms: Option<f64>,
    combined_ms: Option<f64>,
    models: Vec<String>,
    errors: usize,
}

impl Combined {
    /// `None` where no case has been before a second model.
    fn of(records: &[Record]) -> Option<Self> {
        let cases: Vec<(&Record, Escalation)> = records
            .iter()
            .filter_map(|record| Some((record, record.get::<Escalation>("escalation")?)))
            .collect();
        if cases.is_empty() {
            return None;
        }
        let count = |rule: &dyn Fn(&Record, &Escalation) -> bool| {
            cases.iter().filter(|(record, e)| rule(record, e)).count()
        };
        let average = |of: &dyn Fn(&Record, &Escalation) -> Option<f64>| {
            mean(&cases.iter().filter_map(|(record, e)| of(record, e)).collect::<Vec<_>>())
        };
        let mut models: Vec<String> = cases.iter().filter_map(|(_, e)| e.model.clone()).collect();
        models.sort();
        models.dedup();
        Some(Self {
            cases: records.len(),
            escalated: count(&|_, e| e.escalated),
            replaced: count(&|_, e| e.answer.is_some()),
            first: records.iter().filter(|record| record.accurate).count(),
            combined: count(&|record, e| e.accurate.unwrap_or(record.accurate)),
            first_ms: average(&|record, _| record.wall_time_ms),
            second_ms: average(&|_, e| e.pass2_latency_ms),
            combined_ms: average(&|record, e| Some(record.wall_time_ms? + e.pass2_latency_ms.unwrap_or(0.0))),
            models,
            errors: count(&|_, e| e.error.is_some()),
        })
    }

    fn pct(&self, count: usize) -> f64 {
        100.0 * count as f64 / self.cases as f64
    }

    fn json(&self) -> Value {
        json!({
            "pass2_models": self.models, "total_cases": self.cases, "escalated_cases": self.escalated, "replaced_cases": self.replaced,
            "failed_escalations": self.errors, "escalation_rate_pct": self.pct(self.escalated), "pass1_correct": self.first,
            "pass1_accuracy_pct": self.pct(self.first), "cascade_correct": self.combined, "cascade_accuracy_pct": self.pct(self.combined),
            "accuracy_gain_pct": self.pct(self.combined) - self.pct(self.first), "pass1_avg_latency_ms": self.first_ms,
            "pass2_avg_latency_ms": self.second_ms, "cascade_avg_latency_ms": self.combined_ms,
        })
    }

    fn section(&self) -> Section {
        let of = |count: usize| format!("{:.1}% ({count} of {})", self.pct(count), self.cases);
        let models = if self.models.is_empty() { "none answered".to_owned() } else { self.models.join(", ") };
        let rows = vec![
            vec!["Second model".to_owned(), crate::foreign::visible(&models)],
            vec!["Escalated".to_owned(), of(self.escalated)],
            vec!["Answers replaced".to_owned(), self.replaced.to_string()],
            vec!["Escalations that failed; the first answer stands".to_owned(), self.errors.to_string()],
            vec!["Accuracy of the first model".to_owned(), of(self.first)],
            vec!["Accuracy of both together".to_owned(), of(self.combined)],
            vec![
                "Gain, points".to_owned(),
                format!("{:+.1}", self.pct(self.combined) - self.pct(self.first)),
            ],
            vec![
                "Wall time, first, second, both, mean ms".to_owned(),
                format!(
                    "{}, {}, {}",
                    digits(self.first_ms, 1),
                    digits(self.second_ms, 1),
                    digits(self.combined_ms, 1)
                ),
            ],
        ];
        Section::table("Cascade", &["FIGURE", "VALUE"], rows)
    }
}

/// What other thresholds would have done. The accuracy of both models is known only where every case from the threshold on has been
/// before the second.
fn sweep(records: &[Record]) -> Section {
    let rows = SWEEP.iter().map(|&(threshold, normalised)| {
        let unsure = |record: &&Record| {
            let judged = record.answers.values().next();
            let graded = judged.filter(|_| record.error.is_none()).and_then(Judged::graded);
            graded.is_none_or(|graded| {
                let entropy = if normalised {
                    graded.hesitation()
                } else {
                    decision::entropy_nats(graded.probabilities())
                };
                entropy >= threshold
            })
        };
        let (escalated, kept): (Vec<&Record>, Vec<&Record>) = records.iter().partition(unsure);
        let right = |records: &[&Record]| records.iter().filter(|record| record.accurate).count();
        let wrong = records.len() - right(&records.iter().collect::<Vec<_>>());
        let again: Option<Vec<bool>> = escalated
            .iter()
            .map(|record| {
                let escalation = record.get::<Escalation>("escalation")?;
                escalation.escalated.then(|| escalation.accurate.unwrap_or(record.accurate))
            })
            .collect();
        let both = again.map(|again| right(&kept) + again.iter().filter(|accurate| **accurate).count());
        let share = |part: usize, whole: usize| (whole > 0).then(|| part as f64 / whole as f64);
        let name =
            if normalised { format!("{:.0}%", 100.0 * threshold) } else { format!("{threshold} nats") };
        let dash = |share: Option<f64>| share.map_or("-".to_owned(), |share| percent(Some(share)));
        vec![
            name,
            format!("{} of {}", escalated.len(), records.len()),
            dash(share(right(&kept), kept.len())),
            dash(share(escalated.len() - right(&escalated), wrong)),
            percent(both.and_then(|both| share(both, records.len()))),
        ]
    });
    let header =
        ["THRESHOLD", "ESCALATED", "ACCURACY OF THE REST", "ERRORS CAUGHT", "ACCURACY OF BOTH MODELS"];
    Section::table("Thresholds", &header, rows.collect()).with_note(
        "Accuracy of both is not measured where a case above the threshold has not been before a second model; --cascade-threshold 0% sends all of them.",
    )
}
