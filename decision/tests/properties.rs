//! What must hold for any logits, any reads and any schema.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
#![allow(
    clippy::float_cmp,
    reason = "moving labels must not change a bit of what does not depend on their order"
)]

use decision::{
    Alternative, ChunkPrompt, Hole, Kind, Layout, Limits, Question, Reading, Samples, Schema, entropy_nats,
    hesitation, normalise, softmax, stages,
};
use indexmap::IndexMap;
use proptest::collection::{hash_set, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, subsequence};

fn logits() -> impl Strategy<Value = Vec<f32>> {
    vec(prop_oneof![-30.0_f32..30.0, any::<f32>().prop_filter("finite", |logit| logit.is_finite())], 1..30)
}

/// Reads of one slot, and a permutation of its labels.
fn reads_and_order() -> impl Strategy<Value = (Vec<Vec<f64>>, Vec<usize>)> {
    (2_usize..12, 1_usize..6).prop_flat_map(|(labels, n)| {
        let read = vec(-20.0_f32..20.0, labels).prop_map(|logits| softmax(&logits).unwrap());
        (vec(read, n), Just((0..labels).collect::<Vec<_>>()).prop_shuffle())
    })
}

fn permuted(values: &[f64], order: &[usize]) -> Vec<f64> {
    order.iter().map(|&index| values[index]).collect()
}

fn close(left: f64, right: f64) -> bool {
    (left - right).abs() < 1e-9
}

/// Non-blank text with characters that need care in JSON.
const NAME: &str = "[a-zäß0-9 _\"\\\\\n<&]{0,8}[a-z]";

fn kind() -> impl Strategy<Value = Kind> {
    let names = || hash_set(NAME, 2..9);
    prop_oneof![
        (option::of(NAME), option::of(NAME)).prop_map(|(yes, no)| Kind::Boolean { yes, no }),
        (names(), vec(option::of(NAME), 9)).prop_map(|(names, descriptions)| Kind::Choice {
            options: names
                .into_iter()
                .zip(descriptions)
                .map(|(name, description)| Alternative { name, description })
                .collect()
        }),
        names().prop_map(|names| Kind::Score { levels: names.into_iter().collect() }),
    ]
}

/// Questions that may depend on earlier ones.
fn questions() -> impl Strategy<Value = Vec<Question>> {
    let one =
        (kind(), option::of(NAME), any::<bool>(), vec(any::<Index>(), 0..3), option::of(any::<Index>()));
    (vec(one, 1..8), hash_set("[a-z_]{1,6}", 8)).prop_map(|(parts, ids)| {
        let mut questions: Vec<Question> = Vec::new();
        for ((kind, instructions, alone, needs, condition), id) in parts.into_iter().zip(ids) {
            let earlier = questions.len();
            let mut question = Question { id, kind, instructions, alone, ..Question::default() };
            if earlier > 0 {
                question.depends_on =
                    needs.iter().map(|index| questions[index.index(earlier)].id.clone()).collect();
                question.ask_if = condition.map_or_else(IndexMap::new, |index| {
                    let other = &questions[index.index(earlier)];
                    IndexMap::from([(other.id.clone(), vec![other.answer_names()[1].to_owned()])])
                });
            }
            questions.push(question);
        }
        questions
    })
}

fn schemas() -> impl Strategy<Value = Schema> {
    let numbers = (1_u32..=32, 1_u32..=32, 1_u32..=8, 0_u32..=4096, 0.0_f64..3.0);
    let optional = (option::of(NAME), option::of(any::<u64>()), option::of(1_u32..256));
    (questions(), numbers, optional, any::<[bool; 6]>()).prop_map(|(questions, numbers, optional, flags)| {
        Schema {
            instructions: optional.0,
            ask: flags[5].then(|| questions.iter().map(|question| question.id.clone()).collect()),
            questions,
            samples: if flags[0] { Samples::Auto } else { Samples::Fixed(numbers.0) },
            auto_threshold_nats: numbers.4,
            auto_max: numbers.1,
            steps: numbers.2,
            think: numbers.3,
            layout: if flags[1] { Layout::DocumentFirst } else { Layout::SchemaFirst },
            isolate: flags[2],
            hole: if flags[3] { Hole::Pad } else { Hole::Noise },
            seed: optional.1,
            chunk_rows: optional.2,
            chunk_prompt: if flags[4] { ChunkPrompt::Shared } else { ChunkPrompt::Own },
            sequential: flags[0] != flags[1],
        }
    })
}

proptest! {
    #[test]
    fn softmax_is_a_distribution(logits in logits()) {
        let probabilities = softmax(&logits).unwrap();
        prop_assert_eq!(probabilities.len(), logits.len());
        prop_assert!(probabilities.iter().all(|p| (0.0..=1.0).contains(p)));
        prop_assert!(close(probabilities.iter().sum(), 1.0));
    }

    #[test]
    fn softmax_keeps_the_order_of_the_logits(logits in logits()) {
        let probabilities = softmax(&logits).unwrap();
        for (a, p) in logits.iter().zip(&probabilities) {
            for (b, q) in logits.iter().zip(&probabilities) {
                prop_assert!(a <= b && p <= q || a > b && p >= q);
            }
        }
    }

    #[test]
    fn entropy_and_hesitation_stay_in_range(logits in logits()) {
        let probabilities = softmax(&logits).unwrap();
        let entropy = entropy_nats(&probabilities);
        prop_assert!(entropy.is_sign_positive() && entropy <= (logits.len() as f64).ln());
        let hesitation = hesitation(&probabilities);
        prop_assert!(hesitation.is_sign_positive() && hesitation <= 1.0);
    }

    #[test]
    fn a_reading_follows_the_labels_when_they_are_permuted((reads, order) in reads_and_order()) {
        let reading = Reading::from_reads(&reads).unwrap();
        let moved: Vec<Vec<f64>> = reads.iter().map(|read| permuted(read, &order)).collect();
        let moved = Reading::from_reads(&moved).unwrap();
        for (left, right) in moved.probabilities.iter().zip(permuted(&reading.probabilities, &order)) {
            prop_assert_eq!(*left, right);
        }
        prop_assert_eq!(moved.confidence, reading.confidence);
        prop_assert_eq!(moved.agreement, reading.agreement);
        prop_assert_eq!(moved.stderr, reading.stderr);
        prop_assert!(close(moved.entropy_nats, reading.entropy_nats));
        prop_assert!(close(moved.hesitation, reading.hesitation));
    }

    #[test]
    fn a_reading_is_a_distribution_with_its_largest_as_winner((reads, _) in reads_and_order()) {
        let reading = Reading::from_reads(&reads).unwrap();
        prop_assert!(close(reading.probabilities.iter().sum(), 1.0));
        prop_assert!(reading.probabilities.iter().all(|&p| p <= reading.confidence));
        prop_assert!((0.0..=1.0).contains(&reading.hesitation));
        prop_assert!(reading.agreement.is_none_or(|share| (0.0..=1.0).contains(&share)));
        prop_assert!(reading.stderr.is_none_or(|stderr| (0.0..=0.5).contains(&stderr)));
        prop_assert_eq!(reading.agreement.is_some(), reads.len() > 1);
    }

    #[test]
    fn a_schema_survives_the_wire(schema in schemas()) {
        schema.validate(&Limits::default()).unwrap();
        let value = schema.to_value();
        prop_assert_eq!(&Schema::from_value(&value).unwrap(), &schema);
        prop_assert_eq!(&Schema::from_json(&value.to_string()).unwrap(), &schema);
        prop_assert_eq!(normalise(&value).unwrap(), value);
    }

    #[test]
    fn stages_hold_every_question_once_after_what_it_waits_for(schema in schemas()) {
        let stages = stages(&schema).unwrap();
        let mut stage_of: IndexMap<&str, usize> = IndexMap::new();
        for (number, stage) in stages.iter().enumerate() {
            for &index in stage {
                prop_assert!(stage_of.insert(&schema.questions[index].id, number).is_none());
            }
        }
        prop_assert_eq!(stage_of.len(), schema.questions.len());
        for question in &schema.questions {
            let needs: Vec<&String> = question.depends_on.iter().chain(question.ask_if.keys()).collect();
            let earliest = needs.iter().map(|id| stage_of[id.as_str()] + 1).max().unwrap_or(0);
            prop_assert_eq!(stage_of[question.id.as_str()], earliest);
        }
    }

    #[test]
    fn the_order_of_options_is_never_changed(names in hash_set("[a-zA-Z]{1,6}", 2..20)) {
        let names: Vec<String> = names.into_iter().collect();
        let map: Vec<String> = names.iter().map(|name| format!("{name:?}: null")).collect();
        let text = format!(r#"{{"questions": {{"q": {{"type": "choice", "options": {{{}}}}}}}}}"#, map.join(", "));
        let schema = Schema::from_json(&text).unwrap();
        prop_assert_eq!(schema.questions[0].answer_names(), names);
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,60}", cut in any::<Index>()) {
        let schema = r#"{"questions": {"é": {"type": "choice", "options": ["x", "ü"]}}, "samples": "auto"}"#;
        let at = cut.index(schema.chars().count());
        let mixed: String = schema.chars().take(at).chain(text.chars()).chain(schema.chars().skip(at)).collect();
        for text in [text, mixed] {
            let result = Schema::from_json(&text).and_then(|schema| schema.validate(&Limits::default()));
            if let Err(error) = result {
                prop_assert!(error.to_string().contains("hint: "));
            }
        }
    }

    #[test]
    fn a_subset_of_questions_is_asked_in_schema_order(picked in subsequence((0..9).collect::<Vec<usize>>(), 1..9)) {
        let questions: Vec<Question> = (0..9).map(|n| Question { id: format!("q{n}"), ..Question::default() }).collect();
        let ask: Vec<String> = picked.iter().rev().map(|n| format!("q{n}")).collect();
        let schema = Schema { questions, ask: Some(ask), ..Schema::default() };
        schema.validate(&Limits::default()).unwrap();
        prop_assert_eq!(stages(&schema).unwrap(), [picked]);
    }
}
