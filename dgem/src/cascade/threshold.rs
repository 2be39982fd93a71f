//! From which entropy on a question is uncertain: in nats, or as a share of the most it could be.

use decision::Answer;

use crate::error::Error;

/// Publicly measured as the better of the two units: it treats questions with few and many answers alike.
const DEFAULT: Threshold = Threshold { value: 0.16, normalised: true };

/// The entropy from which on a question goes to the second model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    pub(super) value: f64,
    normalised: bool,
}

impl Threshold {
    /// `0.35nats` or `16%`. A bare number would leave open which is meant.
    pub fn parse(text: Option<&str>) -> Result<Self, Error> {
        let Some(text) = text else { return Ok(DEFAULT) };
        let refuse = || Error::BadThreshold { value: text.to_owned() };
        let trimmed = text.trim();
        let (number, scale, normalised) = if let Some(number) = trimmed.strip_suffix('%') {
            (number, 0.01, true)
        } else {
            let number = trimmed.strip_suffix("nats").or_else(|| trimmed.strip_suffix("nat"));
            (number.ok_or_else(refuse)?, 1.0, false)
        };
        let value = number.trim().parse::<f64>().map_err(|_| refuse())? * scale;
        let most = if normalised { 1.0 } else { f64::MAX };
        if (0.0..=most).contains(&value) { Ok(Self { value, normalised }) } else { Err(refuse()) }
    }

    pub fn reached(self, answer: &Answer) -> bool {
        let entropy = if self.normalised { answer.hesitation } else { answer.entropy_nats };
        entropy >= self.value
    }

    pub(super) fn unit(self) -> &'static str {
        if self.normalised { "normalised" } else { "nats" }
    }
}

impl std::fmt::Display for Threshold {
    /// As it is typed.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.normalised { write!(f, "{}%", 100.0 * self.value) } else { write!(f, "{}nats", self.value) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_must_be_said() {
        assert_eq!(Threshold::parse(Some("0.35nats")).unwrap(), Threshold { value: 0.35, normalised: false });
        assert_eq!(Threshold::parse(Some(" 16 % ")).unwrap().unit(), "normalised");
        assert_eq!(Threshold::parse(None).unwrap(), DEFAULT);
        for text in ["0.35", "x%", "101%", "-1nats", "", "nats"] {
            let message = Threshold::parse(Some(text)).unwrap_err().to_string();
            assert!(message.contains("nats") && message.contains('%'), "{message}");
        }
    }
}
