//! One temperature for all answers of a kind: p^(1/T), brought back to the sum 1. It changes how sure answers are, never which one
//! is given (Guo 2017).

use super::scores::{Graded, Scores};

/// The temperatures that a fit looks at, least and most.
pub const TEMPERATURES: (f64, f64) = (0.05, 20.0);
/// Parts for a figure that is measured on other answers than those that were fitted.
pub const FOLDS: usize = 5;
/// Halvings of the search: far below what any figure shows.
const STEPS: usize = 100;

/// A fitted temperature and what it does to the answers it was fitted on.
#[derive(Debug, Clone, PartialEq)]
pub struct Temperature {
    pub value: f64,
    /// It lies at an end of [`TEMPERATURES`]: the answers do not say where to stop, for instance because all are right.
    pub at_bound: bool,
    pub before: Scores,
    pub after: Scores,
}

impl Temperature {
    /// The temperature with the least negative log-likelihood. `None` without answers.
    pub fn fit(answers: &[Graded]) -> Option<Self> {
        let before = Scores::of(answers)?;
        let value = best(answers);
        let after: Vec<Graded> = answers.iter().map(|answer| scaled(answer, value)).collect();
        let margin = 1e-3;
        let at_bound = value < TEMPERATURES.0 * (1.0 + margin) || value > TEMPERATURES.1 * (1.0 - margin);
        Some(Self { value, at_bound, before, after: Scores::of(&after)? })
    }
}

/// `probabilities: [alternatives]` at another temperature. The order of their sizes stays; what is 0 stays 0. A temperature of 1, or
/// one that is no positive number, changes nothing.
pub fn tempered(probabilities: &[f64], temperature: f64) -> Vec<f64> {
    let largest = probabilities.iter().copied().fold(0.0, f64::max);
    if temperature == 1.0 || !temperature.is_finite() || temperature <= 0.0 || largest <= 0.0 {
        return probabilities.to_vec();
    }
    let weights: Vec<f64> = probabilities
        .iter()
        .map(|p| if *p > 0.0 { (p / largest).powf(1.0 / temperature) } else { 0.0 })
        .collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

/// Which part a case belongs to, from a hash of its id: the same in every run.
pub fn fold(hash: u64) -> usize {
    (hash % FOLDS as u64) as usize
}

/// Every answer at the temperature that the answers of the *other* folds ask for. `answers`: with the fold of each. `None` where a fold
/// would leave no others.
pub fn held_out(answers: &[(Graded, usize)]) -> Option<Vec<Graded>> {
    let temperatures: Vec<Option<f64>> = (0..FOLDS)
        .map(|fold| {
            let others: Vec<Graded> =
                answers.iter().filter(|(_, of)| *of != fold).map(|(answer, _)| answer.clone()).collect();
            (!others.is_empty()).then(|| best(&others))
        })
        .collect();
    answers.iter().map(|(answer, fold)| Some(scaled(answer, temperatures[*fold % FOLDS]?))).collect()
}

fn scaled(answer: &Graded, temperature: f64) -> Graded {
    // The same answers in the same order, so that the right one is still there.
    Graded::new(tempered(answer.probabilities(), temperature), answer.gold())
        .unwrap_or_else(|| answer.clone())
}

/// In β = 1/T the mean negative log-likelihood, ln Σ p^β − β ln p_gold, is convex: halving by its slope finds the least.
///
/// As in [`tempered`], what is 0 stays 0: such an alternative has no part in the sum, and an answer whose right alternative is 0
/// or 1 costs the same at every temperature, so it says nothing about it. Without an answer that does the temperature is 1.
fn best(answers: &[Graded]) -> f64 {
    let logarithms: Vec<(Vec<f64>, f64)> = answers
        .iter()
        .filter(|answer| answer.probabilities()[answer.gold()] > 0.0)
        .map(|answer| {
            let gold = answer.probabilities()[answer.gold()].ln();
            let logs: Vec<f64> =
                answer.probabilities().iter().filter(|p| **p > 0.0).map(|p| p.ln()).collect();
            (logs, gold)
        })
        .filter(|(logs, _)| logs.len() > 1)
        .collect();
    if logarithms.is_empty() {
        return 1.0;
    }
    let slope = |beta: f64| -> f64 {
        let of_one = |(logs, gold): &(Vec<f64>, f64)| {
            let largest = logs.iter().copied().fold(f64::MIN, f64::max);
            let weights: Vec<f64> = logs.iter().map(|log| (beta * (log - largest)).exp()).collect();
            let mean = weights.iter().zip(logs).map(|(weight, log)| weight * log).sum::<f64>();
            mean / weights.iter().sum::<f64>() - gold
        };
        logarithms.iter().map(of_one).sum()
    };
    let (mut low, mut high) = (1.0 / TEMPERATURES.1, 1.0 / TEMPERATURES.0);
    for _ in 0..STEPS {
        let middle = f64::midpoint(low, high);
        if slope(middle) > 0.0 { high = middle } else { low = middle }
    }
    1.0 / f64::midpoint(low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graded(rows: &[(&[f64], usize)]) -> Vec<Graded> {
        rows.iter().map(|(p, gold)| Graded::new(p.to_vec(), *gold).unwrap()).collect()
    }

    #[test]
    fn case_30_heat_changes_how_sure_and_never_which() {
        let p = [0.7, 0.2, 0.1];
        let hot = tempered(&p, 2.0);
        let sum = p.iter().map(|p: &f64| p.sqrt()).sum::<f64>();
        for (hot, p) in hot.iter().zip(p) {
            assert!((hot - p.sqrt() / sum).abs() < 1e-12);
        }
        assert!((tempered(&p, 0.5)[0] - 0.49 / 0.54).abs() < 1e-12);
        assert_eq!(tempered(&p, 1.0), p);
        assert_eq!(tempered(&[1.0, 0.0], 3.0), [1.0, 0.0]);
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(tempered(&p, bad), p);
        }
        assert_eq!(tempered(&[1e-300, 1e-200, 1.0], 0.05), [0.0, 0.0, 1.0]);
        assert_eq!(tempered(&[], 2.0), Vec::<f64>::new());
    }

    #[test]
    fn the_fit_finds_the_temperature_by_hand() {
        // Always 0.9 sure and right in 3 of 4: the best says 0.75, so (1/9)^(1/T) = 1/3 and T = 2.
        let rows: Vec<(&[f64], usize)> =
            vec![(&[0.9, 0.1], 0), (&[0.9, 0.1], 0), (&[0.9, 0.1], 0), (&[0.9, 0.1], 1)];
        let fit = Temperature::fit(&graded(&rows)).unwrap();
        assert!((fit.value - 2.0).abs() < 1e-9, "{}", fit.value);
        assert!(!fit.at_bound);
        assert!((fit.after.confidence - 0.75).abs() < 1e-9 && fit.after.ece < 1e-9);
        assert!(fit.after.nll < fit.before.nll);
        assert_eq!(fit.after.accuracy, fit.before.accuracy);
    }

    #[test]
    fn answers_that_are_all_right_or_all_wrong_end_at_a_bound_and_say_so() {
        let right = Temperature::fit(&graded(&[(&[0.9, 0.1], 0), (&[0.6, 0.4], 0)])).unwrap();
        assert!(right.at_bound && right.value < 0.06);
        let wrong = Temperature::fit(&graded(&[(&[0.9, 0.1], 1)])).unwrap();
        assert!(wrong.at_bound && wrong.value > 19.0);
        let certain = Temperature::fit(&graded(&[(&[1.0, 0.0], 1), (&[0.0, 1.0], 1)])).unwrap();
        assert_eq!((certain.value, certain.after.nll), (1.0, certain.before.nll));
        assert_eq!(Temperature::fit(&[]), None);
    }

    #[test]
    fn an_answer_that_no_temperature_changes_does_not_pull_at_it() {
        let mut rows: Vec<(&[f64], usize)> = vec![(&[0.9, 0.1], 0); 95];
        rows.extend([(&[0.9, 0.1] as &[f64], 1); 4]);
        let without = Temperature::fit(&graded(&rows)).unwrap();
        rows.push((&[1.0, 0.0], 1));
        let with = Temperature::fit(&graded(&rows)).unwrap();
        // (1/9)^(1/T) = 4/95
        assert!((with.value - 9f64.ln() / (95f64 / 4.0).ln()).abs() < 1e-9, "{}", with.value);
        assert_eq!(with.value, without.value);
        assert!(with.after.nll < with.before.nll);
    }

    #[test]
    fn what_is_held_out_does_not_see_itself() {
        let rows = graded(&[(&[0.9, 0.1], 0), (&[0.9, 0.1], 0), (&[0.9, 0.1], 0), (&[0.9, 0.1], 1)]);
        let folded: Vec<(Graded, usize)> =
            rows.iter().cloned().enumerate().map(|(n, row)| (row, n)).collect();
        let out = held_out(&folded).unwrap();
        // Without the wrong one all others are right: it is made as sure as can be. A right one sees 2 of 3.
        assert!(out[3].confidence() > 0.999);
        assert!((out[0].confidence() - 2.0 / 3.0).abs() < 1e-9);
        assert_eq!(held_out(&[(rows[0].clone(), 3)]), None);
        assert_eq!(held_out(&[]), Some(Vec::new()));
        assert_eq!((fold(7), fold(10)), (2, 0));
    }
}
