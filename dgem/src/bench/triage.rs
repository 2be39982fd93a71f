//! `dgem bench`: several questions about one text at once, over support tickets, code changes and security alerts.
//!
//! A case is right when every question that the dataset knows an answer to is answered so. Beside the decision the same may be asked in
//! words, as JSON to be written out: `--mode generative` or `both`.

use std::fmt::Write as _;

use decision::Question;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::dataset::BuiltIn;
use super::decider::Decider;
use super::record::{Record, milliseconds};
use super::report::{Section, digits, percent};
use super::sheet::{Sheet, Templates};
use super::suite::{Label, Suite, keys};
use super::summary::{mean, times};
use crate::cli::BenchMode;
use crate::error::Error;
use crate::foreign::clipped;
use crate::grade::{expected_text, position};

/// Most tokens of a reply in words.
const MOST_TOKENS: u32 = 64;
/// Characters of such a reply that a receipt keeps.
const TEXT_CHARS: usize = 300;

#[derive(Debug)]
pub struct Triage {
    pub mode: BenchMode,
}

#[derive(Debug, Deserialize)]
pub struct Row {
    id: String,
    #[serde(default)]
    domain: String,
    template: String,
    variables: Map<String, Value>,
    expected: Map<String, Value>,
    #[serde(default)]
    tier: String,
}

impl Suite for Triage {
    type Row = Row;
    type Plan = Sheet;
    const NAME: &'static str = "bench";

    fn built_in(&self) -> BuiltIn {
        BuiltIn {
            path: "benchmarks/bench_suite.jsonl",
            text: include_str!("../../../benchmarks/bench_suite.jsonl"),
        }
    }

    fn label(&self, row: &Row) -> Label {
        Label::new(&row.id, &row.domain, &row.tier)
    }

    fn plan(&self, row: Row, templates: &mut Templates) -> Result<Sheet, Error> {
        templates.sheet(&row.id, &row.template, row.variables, &row.expected)
    }

    fn warm_up<'p>(&self, plan: &'p Sheet) -> Option<&'p Sheet> {
        (self.mode != BenchMode::Generative).then_some(plan)
    }

    async fn measure<D: Decider>(&self, plan: &Sheet, decider: &D, record: &mut Record) -> Result<(), Error> {
        if self.mode != BenchMode::Generative {
            plan.ask(decider, record).await?;
            record.accurate = record.all_correct(plan);
            record.settled = true;
        }
        if self.mode != BenchMode::Slot {
            let right = write(plan, decider, record).await?;
            if self.mode == BenchMode::Generative {
                record.accurate = right;
            }
        }
        Ok(())
    }

    fn settings(&self) -> Map<String, Value> {
        keys(json!({"mode": name(self.mode)}))
    }

    fn figures(&self, records: &[Record]) -> Map<String, Value> {
        let slot = |record: &&Record| !record.answers.is_empty();
        let slots: Vec<Record> = records.iter().filter(slot).cloned().collect();
        let words = Words::of(records);
        let right = slots.iter().filter(|record| record.accurate && record.error.is_none()).count();
        let extended = slots.iter().filter(|record| record.extended == Some(true)).count();
        let words_ms = words.as_ref().and_then(|words| words.wall_ms);
        // Of the cases that have both.
        let beside = mean(&times(&slots, |record| {
            slot_wall_ms(record).filter(|_| record.more.contains_key("gen_wall_time_ms"))
        }));
        let any = !slots.is_empty();
        let mode = match (any, &words) {
            (true, Some(_)) => BenchMode::Both,
            (false, Some(_)) => BenchMode::Generative,
            (_, None) => BenchMode::Slot,
        };
        keys(json!({
            "mode": (any || words.is_some()).then(|| name(mode)),
            // Cases that failed are wrong ones.
            "slot_accuracy_pct": any.then(|| 100.0 * right as f64 / records.len() as f64),
            "slot_avg_denoise_ms": mean(&times(&slots, |record| record.denoise_ms)),
            "slot_avg_wall_ms": mean(&times(&slots, slot_wall_ms)),
            "slot_multi_reads_triggered": any.then_some(extended),
            "gen_avg_wall_ms": words_ms,
            "gen_avg_tokens": words.as_ref().and_then(|words| words.tokens),
            "gen_asked": words.as_ref().map(|words| words.asked),
            "gen_failed": words.as_ref().map(|words| words.asked - words.replies),
            "gen_syntax_rate_pct": words.as_ref().map(|words| 100.0 * words.valid),
            "gen_accuracy_pct": words.as_ref().map(|words| 100.0 * words.right),
            "speed_up": words_ms.zip(beside).map(|(words, slot)| words / slot),
        }))
    }

    fn case_keys(&self, record: &Record) -> Map<String, Value> {
        if record.answers.is_empty() {
            return keys(json!({"domain": record.category}));
        }
        let answers: Map<String, Value> =
            record.answers.iter().map(|(id, judged)| (id.clone(), json!(judged.said()))).collect();
        let all_correct = record.answers.values().all(|judged| judged.correct);
        keys(json!({
            "domain": record.category, "slot_accurate": all_correct && record.error.is_none(),
            "slot_denoise_ms": record.denoise_ms, "slot_prefill_ms": record.prefill_ms,
            "slot_wall_time_ms": slot_wall_ms(record), "slot_samples": record.samples,
            "slot_extended": record.extended, "slot_retries": record.retries, "slot_answers": answers,
        }))
    }

    fn sections(&self, records: &[Record]) -> Vec<Section> {
        let Some(words) = Words::of(records) else { return Vec::new() };
        let failed = words.asked - words.replies;
        let rows = vec![
            vec!["Cases asked in words, without a reply".to_owned(), format!("{}, {failed}", words.asked)],
            vec!["Replies that are one JSON object".to_owned(), percent(Some(words.valid))],
            vec!["Right in every field".to_owned(), percent(Some(words.right))],
            vec!["Wall time, mean, ms".to_owned(), digits(words.wall_ms, 1)],
            vec!["Tokens, mean".to_owned(), digits(words.tokens, 1)],
        ];
        let note = format!(
            "One reply of at most {MOST_TOKENS} tokens, without a schema; fences and words around the JSON do not count. Shares are of all cases asked in words."
        );
        vec![Section::table("The same in words", &["FIGURE", "VALUE"], rows).with_note(note)]
    }
}

fn name(mode: BenchMode) -> &'static str {
    match mode {
        BenchMode::Slot => "slot",
        BenchMode::Generative => "generative",
        BenchMode::Both => "both",
    }
}

/// The time of the decision; the one in words has its own key.
fn slot_wall_ms(record: &Record) -> Option<f64> {
    record.wall_time_ms.filter(|_| !record.answers.is_empty())
}

/// Asks for the answers as JSON in words. Whether all of them are right.
async fn write<D: Decider>(sheet: &Sheet, decider: &D, record: &mut Record) -> Result<bool, Error> {
    // So it stands if no reply comes.
    record.set("gen_valid_json", false);
    record.set("gen_accurate", false);
    let written = decider.write(&prompt(sheet), MOST_TOKENS).await?;
    let wall_ms = milliseconds(written.wall);
    record.wall_time_ms.get_or_insert(wall_ms);
    record.retries += written.retries;
    record.template.clone_from(&sheet.template);
    if record.model.is_none() {
        record.model = written.model;
    }
    let object = serde_json::from_str::<Map<String, Value>>(written.text.trim()).ok();
    let says = |question: &Question, expected: &str| {
        let said = object.as_ref()?.get(&question.id)?;
        let said = position(question, &expected_text(said))?;
        (position(question, expected) == Some(said)).then_some(())
    };
    let right = sheet.expected.iter().all(|(id, expected)| {
        let question = sheet.schema.questions.iter().find(|question| question.id == *id);
        question.and_then(|question| says(question, expected)).is_some()
    });
    record.set("gen_wall_time_ms", wall_ms);
    record.set("gen_tokens", written.tokens);
    record.set("gen_valid_json", object.is_some());
    record.set("gen_accurate", right);
    record.set("gen_text", clipped(&written.text, TEXT_CHARS));
    Ok(right)
}

fn prompt(sheet: &Sheet) -> String {
    let mut text = "Answer the questions about the text below. Write strictly one JSON object with these keys, and nothing else:".to_owned();
    for question in sheet.schema.asked() {
        let instructions = question.instructions.as_deref().unwrap_or_default().trim();
        let _ =
            write!(text, "\n{}: {instructions} One of: {}", question.id, question.answer_names().join(", "));
    }
    let _ = write!(text, "\n\nText:\n{}", sheet.state.text);
    text
}

/// Figures over the replies in words; absent where there is none.
struct Words {
    asked: usize,
    replies: usize,
    valid: f64,
    right: f64,
    wall_ms: Option<f64>,
    tokens: Option<f64>,
}

impl Words {
    fn of(records: &[Record]) -> Option<Self> {
        let asked: Vec<&Record> =
            records.iter().filter(|record| record.more.contains_key("gen_accurate")).collect();
        let replied = |record: &&&Record| record.more.contains_key("gen_wall_time_ms");
        let share = |key: &str| {
            let yes = asked.iter().filter(|record| record.get::<bool>(key) == Some(true)).count();
            yes as f64 / asked.len() as f64
        };
        let average =
            |key: &str| mean(&asked.iter().filter_map(|record| record.get::<f64>(key)).collect::<Vec<_>>());
        (!asked.is_empty()).then(|| Self {
            asked: asked.len(),
            replies: asked.iter().filter(replied).count(),
            valid: share("gen_valid_json"),
            right: share("gen_accurate"),
            wall_ms: average("gen_wall_time_ms"),
            tokens: average("gen_tokens"),
        })
    }
}
