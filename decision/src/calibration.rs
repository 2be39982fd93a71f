//! How good answers are when the right ones are known: accuracy, Brier score, calibration error, and what a gate would do.
//!
//! Everything is a running sum, so a report over millions of rows takes no memory. `dgem batch` feeds it. Gates work on the
//! hesitation of an answer (`probability`): the escalation table says what remains when the hesitant ones go elsewhere.

use crate::probability::{argmax, hesitation};

/// Equal parts of 0…1 into which confidences fall for the calibration error.
pub const BINS: usize = 10;
/// Hesitations at which the escalation table shows what a gate would do.
pub const GATES: [f64; 6] = [0.05, 0.1, 0.16, 0.25, 0.35, 0.5];

/// Running sums over answers whose right answer is known.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Calibration {
    bins: [Bin; BINS],
    brier_sum: f64,
    escalated: [Count; GATES.len()],
}

/// The answers of one range of confidence.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Bin {
    pub count: u64,
    pub correct: u64,
    confidence_sum: f64,
}

/// One line of the escalation table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gate {
    /// Answers with this hesitation or more are escalated.
    pub hesitation: f64,
    /// Share of all answers that would be escalated.
    pub escalated: f64,
    /// Accuracy of those that stay; `None` when none does.
    pub accuracy_of_kept: Option<f64>,
    /// Share of all wrong answers that would be escalated; `None` when there is no wrong one.
    pub errors_caught: Option<f64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Count {
    all: u64,
    wrong: u64,
}

impl Bin {
    /// Mean confidence; 0 for an empty bin.
    pub fn confidence(&self) -> f64 {
        share(self.confidence_sum, self.count)
    }

    /// Share of right answers; 0 for an empty bin.
    pub fn accuracy(&self) -> f64 {
        share(self.correct as f64, self.count)
    }
}

impl Calibration {
    /// Counts one answer. `probabilities: [alternatives]` in the order of the question, `gold` the index of the right answer.
    /// Of several equal probabilities the first counts as the answer, as everywhere else.
    ///
    /// Returns whether it was counted: there must be a probability for `gold`, and none may be NaN or infinite.
    pub fn add(&mut self, probabilities: &[f64], gold: usize) -> bool {
        let finite = probabilities.iter().all(|p| p.is_finite());
        let Some(winner) = argmax(probabilities.iter().copied()).filter(|_| finite) else { return false };
        if gold >= probabilities.len() {
            return false;
        }
        let (correct, confidence) = (winner == gold, probabilities[winner]);
        let bin = &mut self.bins[bin_of(confidence)];
        bin.count += 1;
        bin.correct += u64::from(correct);
        bin.confidence_sum += confidence;
        self.brier_sum += brier(probabilities, gold);
        let hesitation = hesitation(probabilities);
        for (gate, escalated) in GATES.iter().zip(&mut self.escalated) {
            if hesitation >= *gate {
                escalated.all += 1;
                escalated.wrong += u64::from(!correct);
            }
        }
        true
    }

    /// Adds what another one has seen.
    pub fn merge(&mut self, other: &Self) {
        for (bin, more) in self.bins.iter_mut().zip(&other.bins) {
            bin.count += more.count;
            bin.correct += more.correct;
            bin.confidence_sum += more.confidence_sum;
        }
        self.brier_sum += other.brier_sum;
        for (count, more) in self.escalated.iter_mut().zip(&other.escalated) {
            count.all += more.all;
            count.wrong += more.wrong;
        }
    }

    /// Answers counted.
    pub fn count(&self) -> u64 {
        self.bins.iter().map(|bin| bin.count).sum()
    }

    /// Right ones among them.
    pub fn correct(&self) -> u64 {
        self.bins.iter().map(|bin| bin.correct).sum()
    }

    /// Share of right answers; 0 without answers.
    pub fn accuracy(&self) -> f64 {
        share(self.correct() as f64, self.count())
    }

    /// Mean confidence; 0 without answers.
    pub fn confidence(&self) -> f64 {
        share(self.bins.iter().map(|bin| bin.confidence_sum).sum(), self.count())
    }

    /// Mean of Σ (p − y)² over all alternatives (Brier 1950): 0 is perfect, 2 is certain and wrong. 0 without answers.
    pub fn brier(&self) -> f64 {
        share(self.brier_sum, self.count())
    }

    /// Expected calibration error over ten bins of equal width (Naeini 2015): the mean gap between confidence and accuracy,
    /// weighted by the answers in each bin. 0 without answers.
    pub fn ece(&self) -> f64 {
        let gap = |bin: &Bin| bin.count as f64 * (bin.accuracy() - bin.confidence()).abs();
        share(self.bins.iter().map(gap).sum(), self.count())
    }

    /// The bins, that of the least confidence first.
    pub fn bins(&self) -> &[Bin; BINS] {
        &self.bins
    }

    /// What a gate on hesitation would do, for each of [`GATES`].
    pub fn gates(&self) -> [Gate; GATES.len()] {
        let (count, wrong) = (self.count(), self.count() - self.correct());
        std::array::from_fn(|index| {
            let escalated = self.escalated[index];
            let kept = count - escalated.all;
            Gate {
                hesitation: GATES[index],
                escalated: share(escalated.all as f64, count),
                accuracy_of_kept: (kept > 0).then(|| share((kept - (wrong - escalated.wrong)) as f64, kept)),
                errors_caught: (wrong > 0).then(|| share(escalated.wrong as f64, wrong)),
            }
        })
    }
}

/// The last bin takes a confidence of exactly 1.
fn bin_of(confidence: f64) -> usize {
    ((confidence * BINS as f64).floor().max(0.0) as usize).min(BINS - 1)
}

fn brier(probabilities: &[f64], gold: usize) -> f64 {
    let distance = |(index, p): (usize, &f64)| (p - if index == gold { 1.0 } else { 0.0 }).powi(2);
    probabilities.iter().enumerate().map(distance).sum()
}

fn share(part: f64, count: u64) -> f64 {
    if count == 0 { 0.0 } else { part / count as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rows: &[(&[f64], usize)]) -> Calibration {
        let mut calibration = Calibration::default();
        for (probabilities, gold) in rows {
            assert!(calibration.add(probabilities, *gold));
        }
        calibration
    }

    fn near(left: f64, right: f64) {
        assert!((left - right).abs() < 1e-12, "{left} is not {right}");
    }

    #[test]
    fn nothing_counted_gives_zeros_and_no_nan() {
        let none = Calibration::default();
        assert_eq!(
            (none.count(), none.accuracy(), none.brier(), none.ece(), none.confidence()),
            (0, 0.0, 0.0, 0.0, 0.0)
        );
        let still = Gate { hesitation: 0.05, escalated: 0.0, accuracy_of_kept: None, errors_caught: None };
        assert_eq!(none.gates()[0], still);
    }

    #[test]
    fn perfect_answers_have_no_error_and_nothing_to_escalate() {
        let perfect = of(&[(&[1.0, 0.0], 0), (&[0.0, 0.0, 1.0], 2)]);
        assert_eq!((perfect.accuracy(), perfect.brier(), perfect.ece()), (1.0, 0.0, 0.0));
        let kept = |gate: &Gate| gate.escalated == 0.0 && gate.accuracy_of_kept == Some(1.0);
        assert!(perfect.gates().iter().all(|gate| kept(gate) && gate.errors_caught.is_none()));
    }

    #[test]
    fn certain_and_always_wrong_is_the_worst_there_is() {
        let wrong = of(&[(&[1.0, 0.0], 1), (&[0.0, 1.0], 0)]);
        assert_eq!((wrong.accuracy(), wrong.brier(), wrong.ece()), (0.0, 2.0, 1.0));
        assert!(wrong.gates().iter().all(|gate| gate.errors_caught == Some(0.0)));
    }

    #[test]
    fn one_answer_by_hand() {
        let one = of(&[(&[0.7, 0.2, 0.1], 1)]);
        near(one.brier(), 0.49 + 0.64 + 0.01);
        near(one.ece(), 0.7);
        near(one.confidence(), 0.7);
        assert_eq!((one.count(), one.correct()), (1, 0));
    }

    #[test]
    fn a_tie_goes_to_the_first_alternative_and_hesitates_fully() {
        let tie = of(&[(&[0.5, 0.5], 0), (&[0.5, 0.5], 1)]);
        assert_eq!((tie.correct(), tie.ece()), (1, 0.0));
        near(tie.brier(), 0.5);
        let gate = tie.gates()[5];
        assert_eq!((gate.escalated, gate.errors_caught, gate.accuracy_of_kept), (1.0, Some(1.0), None));
    }

    #[test]
    fn case_50_boundaries_belong_to_the_bin_above_and_one_to_the_last() {
        for tenth in 0..10 {
            assert_eq!(bin_of(f64::from(tenth) / 10.0), tenth as usize);
        }
        assert_eq!((bin_of(1.0), bin_of(1.0 + 1e-9), bin_of(0.999), bin_of(-1e-9)), (9, 9, 9, 0));
    }

    #[test]
    fn the_gap_is_weighted_by_the_bins() {
        // Three in the bin of 0.9 with two right, one in the bin of 0.6 that is right.
        let mixed = of(&[(&[0.9, 0.1], 0), (&[0.9, 0.1], 0), (&[0.9, 0.1], 1), (&[0.6, 0.4], 0)]);
        near(mixed.ece(), (3.0 * (0.9 - 2.0 / 3.0) + (1.0 - 0.6)) / 4.0);
        near(mixed.accuracy(), 0.75);
    }

    #[test]
    fn a_gate_keeps_what_is_certain_and_catches_what_hesitates() {
        // Hesitation of .9/.1 is 0.469, of .99/.01 it is 0.081.
        let rows = of(&[(&[0.99, 0.01], 0), (&[0.99, 0.01], 0), (&[0.99, 0.01], 1), (&[0.9, 0.1], 1)]);
        let at =
            |hesitation: f64| rows.gates().into_iter().find(|gate| gate.hesitation == hesitation).unwrap();
        assert_eq!(at(0.05).escalated, 1.0);
        assert_eq!((at(0.1).escalated, at(0.1).errors_caught), (0.25, Some(0.5)));
        near(at(0.1).accuracy_of_kept.unwrap(), 2.0 / 3.0);
        assert_eq!((at(0.5).escalated, at(0.5).accuracy_of_kept), (0.0, Some(0.5)));
    }

    #[test]
    fn parts_add_up_and_what_cannot_be_counted_is_not() {
        let mut whole = of(&[(&[0.9, 0.1], 0)]);
        whole.merge(&of(&[(&[0.2, 0.8], 0), (&[0.5, 0.5], 1)]));
        assert_eq!(whole, of(&[(&[0.9, 0.1], 0), (&[0.2, 0.8], 0), (&[0.5, 0.5], 1)]));
        let before = whole.clone();
        assert!(!whole.add(&[f64::NAN, 0.5], 0) && !whole.add(&[], 0) && !whole.add(&[0.5, 0.5], 2));
        assert_eq!(whole, before);
    }
}
