//! The usual figures over answers whose right answer is known: accuracy, proper scores, calibration, and whether doubt finds errors.

use super::proportion::{chance_corrected, wilson};
use crate::calibration::{BINS, Bin, Calibration};
use crate::probability::{argmax, entropy_nats, hesitation};

/// A probability below this counts as this in a logarithm: certain and wrong is bad, not infinitely bad.
const LEAST_PROBABILITY: f64 = 1e-12;

/// One answer whose right answer is known.
#[derive(Debug, Clone, PartialEq)]
pub struct Graded {
    probabilities: Vec<f64>,
    gold: usize,
    winner: usize,
}

impl Graded {
    /// `probabilities: [alternatives]` in the order of the question, `gold` the index of the right answer. Of several equal
    /// probabilities the first counts as the answer. `None` where `gold` has no probability, or one is no number of 0 or more.
    pub fn new(probabilities: Vec<f64>, gold: usize) -> Option<Self> {
        let sound = probabilities.iter().all(|p| p.is_finite() && *p >= 0.0) && gold < probabilities.len();
        let winner = argmax(probabilities.iter().copied()).filter(|_| sound)?;
        Some(Self { probabilities, gold, winner })
    }

    pub fn probabilities(&self) -> &[f64] {
        &self.probabilities
    }

    pub fn gold(&self) -> usize {
        self.gold
    }

    pub fn correct(&self) -> bool {
        self.winner == self.gold
    }

    pub fn confidence(&self) -> f64 {
        self.probabilities[self.winner]
    }

    pub fn hesitation(&self) -> f64 {
        hesitation(&self.probabilities)
    }

    /// Σ (p − y)² over all alternatives, 0…2.
    pub fn brier(&self) -> f64 {
        let distance = |(index, p): (usize, &f64)| (p - f64::from(u8::from(index == self.gold))).powi(2);
        self.probabilities.iter().enumerate().map(distance).sum()
    }

    /// −ln of the probability of the right answer, in nats; at most 27.6.
    pub fn nll(&self) -> f64 {
        -self.probabilities[self.gold].max(LEAST_PROBABILITY).ln() + 0.0
    }
}

/// Figures over several answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Scores {
    pub count: u64,
    pub correct: u64,
    pub accuracy: f64,
    /// 95 % (Wilson).
    pub accuracy_interval: (f64, f64),
    /// Accuracy of guessing: the mean of 1/K.
    pub chance: f64,
    /// Accuracy above chance as a share of what was to be had.
    pub chance_corrected: Option<f64>,
    pub confidence: f64,
    pub entropy_nats: f64,
    pub hesitation: f64,
    /// Mean of Σ (p − y)²: 0 is perfect, 2 is certain and wrong.
    pub brier: f64,
    /// Mean of −ln p of the right answer, in nats.
    pub nll: f64,
    /// Expected calibration error over bins of equal width.
    pub ece: f64,
    /// The same over bins with equally many answers.
    pub ece_equal_mass: f64,
    /// Probability that a wrong answer hesitates more than a right one; `None` unless there are both.
    pub auroc: Option<f64>,
    /// Bins of equal width, that of the least confidence first.
    pub bins: [Bin; BINS],
}

impl Scores {
    /// `None` without answers.
    pub fn of(answers: &[Graded]) -> Option<Self> {
        let mut calibration = Calibration::default();
        for answer in answers {
            // `Graded` holds nothing that is not counted.
            calibration.add(&answer.probabilities, answer.gold);
        }
        let (count, correct) = (calibration.count(), calibration.correct());
        let mean = |figure: &dyn Fn(&Graded) -> f64| answers.iter().map(figure).sum::<f64>() / count as f64;
        let accuracy_interval = wilson(correct, count)?;
        let chance = mean(&|answer| 1.0 / answer.probabilities.len() as f64);
        Some(Self {
            count,
            correct,
            accuracy: calibration.accuracy(),
            accuracy_interval,
            chance,
            chance_corrected: chance_corrected(calibration.accuracy(), chance),
            confidence: calibration.confidence(),
            entropy_nats: mean(&|answer| entropy_nats(&answer.probabilities)),
            hesitation: mean(&Graded::hesitation),
            brier: calibration.brier(),
            nll: mean(&Graded::nll),
            ece: calibration.ece(),
            ece_equal_mass: ece_equal_mass(answers),
            auroc: auroc(answers.iter().map(|answer| (answer.hesitation(), !answer.correct()))),
            bins: *calibration.bins(),
        })
    }
}

/// The calibration error over bins with equally many answers (give or take one). Answers of equal confidence share their accuracy, so
/// that the order of the input changes nothing. 0 without answers.
fn ece_equal_mass(answers: &[Graded]) -> f64 {
    let mut pairs: Vec<(f64, f64)> =
        answers.iter().map(|answer| (answer.confidence(), f64::from(u8::from(answer.correct())))).collect();
    pairs.sort_by(|left, right| left.0.total_cmp(&right.0));
    for equals in pairs.chunk_by_mut(|left, right| left.0 == right.0) {
        let accuracy = equals.iter().map(|pair| pair.1).sum::<f64>() / equals.len() as f64;
        equals.iter_mut().for_each(|pair| pair.1 = accuracy);
    }
    let n = pairs.len();
    let gap = |bin: usize| {
        let part = &pairs[bin * n / BINS..(bin + 1) * n / BINS];
        part.iter().map(|(confidence, correct)| confidence - correct).sum::<f64>().abs()
    };
    if n == 0 { 0.0 } else { (0..BINS).map(gap).sum::<f64>() / n as f64 }
}

/// Area under the ROC curve of a score that shall be high for positives: the probability that it is higher for a positive than for a
/// negative, equals counting half (Mann and Whitney 1947). `None` unless there are both.
pub fn auroc(scores: impl IntoIterator<Item = (f64, bool)>) -> Option<f64> {
    let mut scores: Vec<(f64, bool)> = scores.into_iter().collect();
    scores.sort_by(|left, right| left.0.total_cmp(&right.0));
    let positives = scores.iter().filter(|(_, positive)| *positive).count() as f64;
    let negatives = scores.len() as f64 - positives;
    let (mut below, mut wins) = (0.0, 0.0);
    for equals in scores.chunk_by(|left, right| left.0 == right.0) {
        let here = equals.iter().filter(|(_, positive)| *positive).count() as f64;
        let others = equals.len() as f64 - here;
        wins += here * (below + others / 2.0);
        below += others;
    }
    (positives > 0.0 && negatives > 0.0).then(|| wins / (positives * negatives))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graded(rows: &[(&[f64], usize)]) -> Vec<Graded> {
        rows.iter().map(|(p, gold)| Graded::new(p.to_vec(), *gold).unwrap()).collect()
    }

    fn scores(rows: &[(&[f64], usize)]) -> Scores {
        Scores::of(&graded(rows)).unwrap()
    }

    fn near(left: f64, right: f64) {
        assert!((left - right).abs() < 1e-12, "{left} is not {right}");
    }

    #[test]
    fn without_answers_there_is_nothing_to_say() {
        assert_eq!(Scores::of(&[]), None);
        assert_eq!(auroc([]), None);
    }

    #[test]
    fn perfect_and_certain() {
        let perfect = scores(&[(&[1.0, 0.0], 0), (&[0.0, 0.0, 1.0], 2)]);
        assert_eq!((perfect.accuracy, perfect.brier, perfect.nll), (1.0, 0.0, 0.0));
        assert_eq!((perfect.ece, perfect.ece_equal_mass, perfect.auroc), (0.0, 0.0, None));
        near(perfect.chance, f64::midpoint(0.5, 1.0 / 3.0));
        assert_eq!(perfect.chance_corrected, Some(1.0));
        assert_eq!(perfect.accuracy_interval.1, 1.0);
    }

    #[test]
    fn certain_and_always_wrong_stays_finite() {
        let wrong = scores(&[(&[1.0, 0.0], 1), (&[0.0, 1.0], 0)]);
        assert_eq!((wrong.accuracy, wrong.brier, wrong.ece, wrong.ece_equal_mass), (0.0, 2.0, 1.0, 1.0));
        near(wrong.nll, -(1e-12_f64.ln()));
        assert_eq!((wrong.auroc, wrong.chance_corrected), (None, Some(0.0)));
    }

    #[test]
    fn one_answer_by_hand() {
        let one = scores(&[(&[0.7, 0.2, 0.1], 1)]);
        near(one.brier, 0.49 + 0.64 + 0.01);
        near(one.nll, -(0.2_f64.ln()));
        near(one.ece, 0.7);
        near(one.ece_equal_mass, 0.7);
        near(one.entropy_nats, 0.801_818_552_543_337_3);
        near(one.hesitation, one.entropy_nats / 3.0_f64.ln());
        assert_eq!((one.count, one.correct, one.auroc), (1, 0, None));
    }

    #[test]
    fn ties_count_half_and_do_not_depend_on_the_order() {
        assert_eq!(auroc([(0.5, true), (0.5, false)]), Some(0.5));
        assert_eq!(auroc([(0.9, true), (0.1, false)]), Some(1.0));
        assert_eq!(auroc([(0.1, true), (0.9, false)]), Some(0.0));
        // Pairs: 0.8 over 0.2 and 0.5, 0.5 over 0.2 and even with 0.5.
        assert_eq!(auroc([(0.5, false), (0.8, true), (0.2, false), (0.5, true)]), Some(3.5 / 4.0));
        let mut rows: Vec<(&[f64], usize)> = vec![(&[0.9, 0.1], 0); 7];
        rows.extend(vec![(&[0.9, 0.1][..], 1); 3]);
        let forward = scores(&rows);
        rows.reverse();
        let backward = scores(&rows);
        assert_eq!(forward.ece_equal_mass.to_bits(), backward.ece_equal_mass.to_bits());
        assert_eq!((forward.auroc, forward.correct), (backward.auroc, backward.correct));
        near(forward.ece, 0.2);
        near(forward.ece_equal_mass, 0.2);
    }

    #[test]
    fn bins_of_equal_mass_see_what_bins_of_equal_width_average_away() {
        // All in one bin of width 0.1, the surer half right and the other wrong.
        let rows: Vec<(Vec<f64>, usize)> = (0..10)
            .map(|n| (vec![0.90 + 0.009 * f64::from(n), 0.10 - 0.009 * f64::from(n)], usize::from(n < 5)))
            .collect();
        let rows: Vec<Graded> = rows.into_iter().map(|(p, gold)| Graded::new(p, gold).unwrap()).collect();
        let scores = Scores::of(&rows).unwrap();
        let mean = 0.90 + 0.009 * 4.5;
        near(scores.ece, mean - 0.5);
        let by_hand: f64 = (0..10)
            .map(|n| 0.90 + 0.009 * f64::from(n))
            .enumerate()
            .map(|(n, p)| if n < 5 { p } else { 1.0 - p })
            .sum::<f64>()
            / 10.0;
        near(scores.ece_equal_mass, by_hand);
        assert_eq!(scores.auroc, Some(1.0));
    }

    #[test]
    fn what_is_no_distribution_is_refused() {
        for (probabilities, gold) in [
            (vec![f64::NAN, 0.5], 0),
            (vec![], 0),
            (vec![0.5, 0.5], 2),
            (vec![-0.1, 1.1], 1),
            (vec![f64::INFINITY], 0),
        ] {
            assert_eq!(Graded::new(probabilities, gold), None);
        }
    }
}
