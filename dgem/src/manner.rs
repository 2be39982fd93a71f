//! In which manner answers are read: the settings that change probabilities. A temperature that was fitted on answers of one manner says
//! nothing about those of another.
//!
//! A receipt holds the manners of each template (`bench::Origin`), a calibration that of its answers (`temper`).

use decision::{Samples, Schema};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manner {
    /// Noise draws: a number, or `auto`.
    pub samples: String,
    pub layout: String,
    /// Denoise steps of one read.
    pub steps: u32,
    /// Most tokens of a thought before the read.
    pub think: u32,
    /// Orders of the options that are averaged; 1 is their own alone.
    pub permute: usize,
}

impl Manner {
    /// `schema`: with what the flags say put in; `orders`: what `--permute` says.
    pub fn of(schema: &Schema, orders: Option<usize>) -> Self {
        let samples = match schema.samples {
            Samples::Auto => "auto".to_owned(),
            Samples::Fixed(count) => count.to_string(),
        };
        Self {
            samples,
            layout: schema.layout.as_str().to_owned(),
            steps: schema.steps,
            think: schema.think,
            permute: orders.unwrap_or(1).max(1),
        }
    }

    /// What is not the same, in words; nothing where both are alike.
    pub fn difference(&self, now: &Self) -> Option<String> {
        let pairs = [
            ("samples", self.samples.clone(), now.samples.clone()),
            ("layout", self.layout.clone(), now.layout.clone()),
            ("steps", self.steps.to_string(), now.steps.to_string()),
            ("think", self.think.to_string(), now.think.to_string()),
            ("permute", self.permute.to_string(), now.permute.to_string()),
        ];
        let different = pairs.into_iter().filter(|(_, then, now)| then != now);
        let told: Vec<String> =
            different.map(|(name, then, now)| format!("{name} {then}, now {now}")).collect();
        (!told.is_empty()).then(|| told.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_probabilities_is_told_and_nothing_else() {
        let schema = |more: &str| {
            let text = format!(r#"{{"questions": [{{"id": "q", "type": "boolean"}}]{more}}}"#);
            Schema::from_json(&text).unwrap()
        };
        let plain = Manner::of(&schema(""), None);
        assert_eq!(plain.difference(&Manner::of(&schema(r#", "seed": 7"#), Some(1))), None);
        for (more, orders, part) in [
            (r#", "samples": "auto""#, None, ", now auto"),
            (r#", "layout": "document_first""#, None, "layout schema_first, now document_first"),
            (r#", "steps": 3"#, None, "steps "),
            (r#", "think": 64"#, None, "think 0, now 64"),
            ("", Some(3), "permute 1, now 3"),
        ] {
            let told = plain.difference(&Manner::of(&schema(more), orders)).unwrap();
            assert!(told.contains(part) && !told.contains(';'), "{told}");
        }
    }
}
