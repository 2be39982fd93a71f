//! Answers and diagnostics have exactly the JSON of the contract, and the replies of other servers can be read.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use decision::{
    Answer, AnswerValue, DecisionReply, Diagnostics, Policy, Question, Reading, ReadingError, SamplesTaken,
    Schema, Skipped, SlotDiagnostics, Timing,
};
use indexmap::IndexMap;
use serde_json::{Value, json};

fn question(value: &Value) -> Question {
    Schema::from_value(&json!({ "questions": [value] })).unwrap().questions.remove(0)
}

fn answer(question: &Question, reads: &[Vec<f64>]) -> Answer {
    Answer::new(question, &Reading::from_reads(reads).unwrap()).unwrap()
}

fn close(left: f64, right: f64) -> bool {
    (left - right).abs() < 1e-12
}

#[test]
fn a_boolean_carries_the_probability_of_yes() {
    let question = question(&json!({"id": "a", "type": "boolean"}));
    let text = serde_json::to_string(&answer(&question, &[vec![0.25, 0.75]])).unwrap();
    let start = r#"{"type":"boolean","label":"no","confidence":0.75,"probabilities":{"yes":0.25,"no":0.75},"noul":0.25,"entropy":0.562"#;
    assert!(text.starts_with(start), "{text}");
    let keys: Vec<String> =
        serde_json::from_str::<IndexMap<String, Value>>(&text).unwrap().into_keys().collect();
    assert_eq!(keys, ["type", "label", "confidence", "probabilities", "noul", "entropy", "hesitation"]);
}

#[test]
fn a_choice_carries_the_name_and_real_zeros() {
    let question =
        question(&json!({"id": "a", "type": "choice", "options": ["billing", "support", "engineering"]}));
    assert_eq!(
        serde_json::to_string(&answer(&question, &[vec![1.0, 0.0, 0.0]])).unwrap(),
        r#"{"type":"choice","label":"A","choice":"billing","confidence":1.0,"probabilities":{"billing":1.0,"support":0.0,"engineering":0.0},"entropy":0.0,"hesitation":0.0}"#
    );
}

#[test]
fn a_score_carries_the_level_and_the_expectation_from_one() {
    let question =
        question(&json!({"id": "a", "type": "score", "levels": ["calm", "frustrated", "furious"]}));
    let answer = answer(&question, &[vec![0.25, 0.5, 0.25]]);
    let text = serde_json::to_string(&answer).unwrap();
    let start = r#"{"type":"score","label":"2","level":"frustrated","score":2.0,"confidence":0.5,"probabilities":{"calm":0.25,"frustrated":0.5,"furious":0.25},"entropy":1.039"#;
    assert!(text.starts_with(start), "{text}");
    assert_eq!(answer.name(), "frustrated");
}

#[test]
fn several_reads_add_stderr_and_agreement_at_the_end() {
    let question = question(&json!({"id": "a", "type": "boolean"}));
    let text = serde_json::to_string(&answer(&question, &[vec![0.5, 0.5], vec![1.0, 0.0]])).unwrap();
    assert!(text.ends_with(r#","stderr":0.25,"agreement":1.0}"#), "{text}");
}

#[test]
fn a_boolean_of_zero_and_one_has_clean_zeros() {
    let question = question(&json!({"id": "a", "type": "boolean"}));
    let text = serde_json::to_string(&answer(&question, &[vec![0.0, 1.0]])).unwrap();
    assert_eq!(
        text,
        r#"{"type":"boolean","label":"no","confidence":1.0,"probabilities":{"yes":0.0,"no":1.0},"noul":0.0,"entropy":0.0,"hesitation":0.0}"#
    );
}

#[test]
fn an_engine_may_bring_its_own_labels() {
    let names: Vec<String> = (0..151).map(|n| format!("intent {n}")).collect();
    let question = question(&json!({"id": "a", "type": "choice", "options": names}));
    let labels: Vec<String> = (0..151).map(|n| format!("L{n}")).collect();
    let mut read = vec![0.0; 151];
    read[140] = 1.0;
    let answer = Answer::with_labels(&question, &labels, &Reading::from_reads(&[read]).unwrap()).unwrap();
    assert_eq!((answer.label.as_str(), answer.name()), ("L140", "intent 140"));
}

#[test]
fn a_reading_of_another_size_is_refused() {
    let question = question(&json!({"id": "a", "type": "boolean"}));
    let reading = Reading::from_reads(&[vec![0.2, 0.3, 0.5]]).unwrap();
    assert!(matches!(
        Answer::new(&question, &reading),
        Err(ReadingError::WrongCount { expected: 2, found: 3, .. })
    ));
}

#[test]
fn what_was_written_is_read_back() {
    for (value, reads) in [
        (json!({"id": "a", "type": "boolean"}), vec![vec![0.3, 0.7], vec![0.2, 0.8]]),
        (json!({"id": "a", "type": "choice", "options": ["x", "y", "z"]}), vec![vec![0.1, 0.2, 0.7]]),
        (json!({"id": "a", "type": "score", "levels": [1, 2]}), vec![vec![0.5, 0.5]]),
    ] {
        let mut answer = answer(&question(&value), &reads);
        answer.source = Some("generation_logprobs".into());
        let text = serde_json::to_string(&answer).unwrap();
        assert_eq!(serde_json::from_str::<Answer>(&text).unwrap(), answer);
    }
}

#[test]
fn what_follows_from_the_probabilities_may_be_missing() {
    let read = |text: &str| serde_json::from_str::<Answer>(text).unwrap();
    let choice =
        read(r#"{"type": "choice", "probabilities": {"x": 0.2, "y": 0.7, "z": 0.1}, "new_key": {"a": 1}}"#);
    assert_eq!((choice.label.as_str(), choice.name()), ("B", "y"));
    assert!(close(choice.confidence, 0.7));
    assert!((choice.entropy_nats - 0.8018).abs() < 1e-4);
    assert!(close(choice.hesitation, choice.entropy_nats / 3.0_f64.ln()));
    let score = read(r#"{"type": "score", "probabilities": {"low": 0.1, "high": 0.9}}"#);
    assert_eq!((score.label.as_str(), score.name()), ("2", "high"));
    assert!(matches!(score.value, AnswerValue::Score { score, .. } if close(score, 1.9)));
    let boolean = read(r#"{"type": "noul", "noul": 0.0, "probabilities": {"true": 0.0, "false": 1.0}}"#);
    assert_eq!(boolean.name(), "no");
    assert_eq!(boolean.probabilities.keys().collect::<Vec<_>>(), ["yes", "no"]);
    let bare = read(r#"{"type": "bool", "noul": 0.75}"#);
    assert_eq!((bare.name(), bare.probabilities["no"]), ("yes", 0.25));
}

#[test]
fn given_values_are_kept_even_when_zero() {
    let text = r#"{"type": "score", "label": "1", "level": "low", "score": 0, "confidence": 0.0, "entropy": [0.5, 0.6],
                   "hesitation": 0, "stderr": null, "probabilities": {"low": 0.5, "high": 0.5}}"#;
    let answer: Answer = serde_json::from_str(text).unwrap();
    assert!(matches!(answer.value, AnswerValue::Score { score, .. } if score.to_bits() == 0));
    assert_eq!((answer.confidence.to_bits(), answer.hesitation.to_bits(), answer.stderr), (0, 0, None));
    assert!(close(answer.entropy_nats, 0.5));
}

#[test]
fn options_named_like_labels_are_not_confused_with_them() {
    let question = question(&json!({"id": "a", "type": "choice", "options": ["B", "A"]}));
    let answer = answer(&question, &[vec![0.9, 0.1]]);
    assert_eq!((answer.label.as_str(), answer.name()), ("A", "B"));
    let read: Answer =
        serde_json::from_str(r#"{"type": "choice", "label": "A", "probabilities": {"B": 0.9, "A": 0.1}}"#)
            .unwrap();
    assert_eq!((read.label.as_str(), read.name(), read.confidence), ("A", "B", 0.9));
}

#[test]
fn unreadable_answers_are_errors() {
    for (text, part) in [
        (r#"{"type": "essay", "probabilities": {"x": 1.0}}"#, "\"essay\""),
        (r#"{"type": "choice"}"#, "no probabilities"),
        (r#"{"type": "choice", "probabilities": {}}"#, "empty"),
        (r#"{"type": "choice", "probabilities": {"x": 1.5, "y": -0.5}}"#, "1.5"),
        (r#"{"type": "choice", "probabilities": {"x": null}}"#, "null"),
        (r#"{"type": "boolean", "noul": 7}"#, "7"),
        (r#"{"probabilities": {"x": 1.0}}"#, "type"),
    ] {
        let error = serde_json::from_str::<Answer>(text).unwrap_err().to_string();
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
}

/// The diagnostics of the contract's example, key by key.
const DIAGNOSTICS: &str = r#"{"engine":"diffusion","steps":1,"layout":"schema_first","prompt_tokens":204,"stages":[["urgent","team","sentiment"]],"chunks":[["urgent","team","sentiment"]],"skipped":{},"thought":null,"samples":{"n":1,"policy":{"mode":"fixed","n":1}},"timing":{"total_ms":41.2,"queue_ms":0.3,"prefill_ms":20.1,"denoise_ms":18.9,"reads":1,"rounds":1,"prompt_tokens":204,"reused_tokens":169},"questions":{"urgent":{"pos":6,"entropy":[0.01],"label_mass":0.998,"argmax_is_label":true,"argmax_token":"yes"}}}"#;

#[test]
fn diagnostics_have_the_keys_and_the_order_of_the_contract() {
    let all = vec![vec!["urgent".to_owned(), "team".to_owned(), "sentiment".to_owned()]];
    let slot = SlotDiagnostics {
        pos: 6,
        entropy: vec![0.01],
        label_mass: Some(0.998),
        argmax_is_label: Some(true),
        argmax_token: Some("yes".into()),
    };
    let diagnostics = Diagnostics {
        engine: "diffusion".into(),
        steps: 1,
        layout: "schema_first".into(),
        prompt_tokens: 204,
        stages: all.clone(),
        chunks: all,
        skipped: IndexMap::new(),
        thought: None,
        samples: SamplesTaken { n: 1, policy: Policy::Fixed { n: 1 } },
        timing: Timing {
            total_ms: 41.2,
            queue_ms: 0.3,
            prefill_ms: 20.1,
            denoise_ms: 18.9,
            reads: 1,
            rounds: 1,
            prompt_tokens: 204,
            reused_tokens: 169,
        },
        questions: IndexMap::from([("urgent".to_owned(), slot)]),
    };
    assert_eq!(serde_json::to_string(&diagnostics).unwrap(), DIAGNOSTICS);
    assert_eq!(serde_json::from_str::<Diagnostics>(DIAGNOSTICS).unwrap(), diagnostics);
}

#[test]
fn rows_that_were_not_computed_are_left_out() {
    let slot = SlotDiagnostics { pos: 3, entropy: vec![0.5], ..SlotDiagnostics::default() };
    assert_eq!(serde_json::to_string(&slot).unwrap(), r#"{"pos":3,"entropy":[0.5]}"#);
    let skipped = Skipped { because: "a".into(), was: None, wanted: vec!["yes".into()] };
    assert_eq!(serde_json::to_string(&skipped).unwrap(), r#"{"because":"a","was":null,"wanted":["yes"]}"#);
}

#[test]
fn the_auto_policy_says_whether_it_read_further() {
    let policy = Policy::Auto { threshold: 0.1, max: 4, extended: true, first_read_max_entropy: Some(0.7) };
    let text = r#"{"mode":"auto","threshold":0.1,"max":4,"extended":true,"first_read_max_entropy":0.7}"#;
    assert_eq!(serde_json::to_string(&policy).unwrap(), text);
    assert_eq!(serde_json::from_str::<Policy>(text).unwrap(), policy);
}

#[test]
fn diagnostics_of_other_servers_are_read() {
    let reply: DecisionReply = serde_json::from_str(
        r#"{"answers": {"a": {"type": "choice", "probabilities": {"x": 0.7, "y": 0.2, "z": 0.1}}, "b": null},
            "diagnostics": {"engine": null, "samples": {"n": [4, 4], "policy": {"mode": "auto", "threshold": 0.1, "max": 4,
            "extended": true, "first_read_entropy": {"a": 0.2, "b": 1.5}}}, "thought": {"tokens": 12}, "timing": {"total_ms": 5},
            "questions": {"a": {"entropy": 1.9, "label_mass": null}}, "something": ["else"]}}"#,
    )
    .unwrap();
    // The entropy of an answer is that of its probabilities, whatever the diagnostics say about the slot.
    assert!((reply.answers["a"].as_ref().unwrap().entropy_nats - 0.8018).abs() < 1e-4);
    assert_eq!(reply.diagnostics.questions["a"].entropy, [1.9]);
    assert_eq!(reply.answers["b"], None);
    assert_eq!(reply.diagnostics.samples.n, 4);
    let Policy::Auto { first_read_max_entropy, .. } = reply.diagnostics.samples.policy else {
        panic!("not auto")
    };
    assert_eq!(first_read_max_entropy, Some(1.5));
    assert_eq!(reply.diagnostics.thought.as_deref(), Some("{\"tokens\":12}"));
    assert!(close(reply.diagnostics.timing.total_ms, 5.0));
}

#[test]
fn a_policy_of_another_shape_is_kept_as_it_came() {
    let samples: SamplesTaken = serde_json::from_str(r#"{"n": 2, "policy": "samples=2"}"#).unwrap();
    assert_eq!(samples.policy, Policy::Other(json!("samples=2")));
    let reply: DecisionReply = serde_json::from_str(r#"{"answers": {}}"#).unwrap();
    assert_eq!(reply, DecisionReply::default());
}

#[test]
fn the_order_of_answers_and_probabilities_survives() {
    let text = r#"{"answers":{"z":{"type":"choice","label":"A","choice":"y","confidence":0.6,"probabilities":{"y":0.6,"a":0.4},"entropy":0.5,"hesitation":0.5},"a":null}"#;
    let reply: DecisionReply = serde_json::from_str(&format!("{text}}}")).unwrap();
    assert!(serde_json::to_string(&reply).unwrap().starts_with(text));
}
