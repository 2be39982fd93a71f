//! From logits to probabilities, and how undecided a distribution is.
//!
//! All arithmetic is f64. Nothing here ever returns NaN: what is not finite is refused where it comes in.
//! Called by the server after every read; `entropy_nats` also by the client, for servers that send none. Next: `reading`.

use crate::error::ReadingError;

/// Softmax at temperature 1 over the logits of one slot's labels.
///
/// `logits: [labels]` → `[labels]`, sum 1. The largest logit is subtracted first, so no input overflows.
/// Errors: no logits, or one that is NaN or infinite.
pub fn softmax(logits: &[f32]) -> Result<Vec<f64>, ReadingError> {
    if logits.is_empty() {
        return Err(ReadingError::Empty { what: "softmax over no logits" });
    }
    if let Some((index, &value)) = logits.iter().enumerate().find(|(_, logit)| !logit.is_finite()) {
        return Err(ReadingError::NonFinite { index, value });
    }
    let largest = logits.iter().copied().fold(f32::MIN, f32::max);
    let weights: Vec<f64> =
        logits.iter().map(|&logit| (f64::from(logit) - f64::from(largest)).exp()).collect();
    let sum: f64 = weights.iter().sum();
    Ok(weights.into_iter().map(|weight| weight / sum).collect())
}

/// Shannon entropy −Σ p ln p in nats, with 0·ln 0 = 0; between 0 (never −0) and ln K.
///
/// `probabilities: [labels]`.
pub fn entropy_nats(probabilities: &[f64]) -> f64 {
    let sum: f64 = probabilities.iter().filter(|&&p| p > 0.0).map(|&p| p * p.ln()).sum();
    let largest = (probabilities.len().max(1) as f64).ln();
    // Rounding may step over either end by an ulp; adding 0.0 turns −0 into 0.
    (-sum).clamp(0.0, largest) + 0.0
}

/// Entropy as a share of the most it could be: 0 is certain, 1 is uniform. A single alternative gives 0.
pub fn hesitation(probabilities: &[f64]) -> f64 {
    hesitation_over(entropy_nats(probabilities), probabilities.len())
}

/// `entropy_nats / ln alternatives`, within 0…1. For a reply that lists only its top answers, pass the number of
/// alternatives in the schema, not the number returned.
pub fn hesitation_over(entropy_nats: f64, alternatives: usize) -> f64 {
    if alternatives < 2 { 0.0 } else { (entropy_nats / (alternatives as f64).ln()).clamp(0.0, 1.0) }
}

/// Index of the largest value; the first of several equals. `None` for an empty slice.
pub(crate) fn argmax(values: impl IntoIterator<Item = f64>) -> Option<usize> {
    let mut best: Option<(usize, f64)> = None;
    for (index, value) in values.into_iter().enumerate() {
        if best.is_none_or(|(_, largest)| value > largest) {
            best = Some((index, value));
        }
    }
    best.map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certain_distribution_has_positive_zero_entropy() {
        let entropy = entropy_nats(&[1.0, 0.0]);
        assert_eq!(entropy.to_bits(), 0.0_f64.to_bits());
        assert_eq!(hesitation(&[1.0, 0.0]).to_bits(), 0.0_f64.to_bits());
        assert_eq!(entropy_nats(&[]).to_bits(), 0.0_f64.to_bits());
    }

    #[test]
    fn entropy_is_in_nats() {
        assert!((entropy_nats(&[0.7, 0.2, 0.1]) - 0.801_818_55).abs() < 1e-8);
        assert!((entropy_nats(&[0.5, 0.5]) - std::f64::consts::LN_2).abs() < 1e-15);
        assert!((hesitation(&[0.25; 4]) - 1.0).abs() < 1e-15);
        assert_eq!(hesitation(&[1.0]).to_bits(), 0.0_f64.to_bits());
    }

    #[test]
    fn hesitation_of_a_truncated_reply_uses_the_schema_count() {
        assert!((hesitation_over(26.0_f64.ln(), 26) - 1.0).abs() < 1e-15);
        assert!(hesitation_over(5.0_f64.ln(), 26) < 0.5);
    }

    #[test]
    fn non_finite_logits_are_refused_by_index() {
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let error = softmax(&[0.0, value]).unwrap_err();
            assert!(matches!(error, ReadingError::NonFinite { index: 1, .. }), "{error}");
            assert!(error.to_string().contains("hint:"));
        }
        assert!(matches!(softmax(&[]), Err(ReadingError::Empty { .. })));
    }

    #[test]
    fn extreme_logits_do_not_overflow() {
        assert_eq!(softmax(&[f32::MAX, f32::MIN]).unwrap(), [1.0, 0.0]);
        assert_eq!(softmax(&[f32::MAX, f32::MAX]).unwrap(), [0.5, 0.5]);
    }

    #[test]
    fn first_of_equals_wins() {
        assert_eq!(argmax([0.2, 0.4, 0.4]), Some(1));
        assert_eq!(argmax([]), None);
    }
}
