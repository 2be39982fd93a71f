//! A choice with more alternatives than there are labels: rounds of brackets, then a final of the best, as one distribution.
//!
//! Only arithmetic, for whoever asks the rounds: the server where its tokenizer has too few labels, the client where a server has
//! too few. The way of putting rounds together is that of published servers of this contract.

use crate::probability::{argmax, entropy_nats, hesitation};
use crate::reading::Reading;

/// Alternatives of a bracket that go on; of a pair one, or nobody would ever drop out.
const KEPT: usize = 2;
/// Least probability of an alternative, so that none is ruled out by a read it was not in.
const FLOOR: f64 = 1e-6;

/// Alternatives that were compared with each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Bracket {
    /// Indices of the alternatives in the question, ascending.
    pub members: Vec<usize>,
    /// What the read gave them; empty before it.
    pub probabilities: Vec<f64>,
}

impl Bracket {
    /// Balanced brackets of neighbours: as few as hold all with at most `most` each, their sizes at most one apart.
    #[must_use]
    pub fn split(alternatives: &[usize], most: usize) -> Vec<Self> {
        let (count, parts) = (alternatives.len(), alternatives.len().div_ceil(most.max(1)));
        let cut = |part: usize| part * count / parts;
        (0..parts)
            .map(|part| Self {
                members: alternatives[cut(part)..cut(part + 1)].to_vec(),
                probabilities: Vec::new(),
            })
            .collect()
    }

    /// Those that go on, most probable first; of equals the first.
    #[must_use]
    pub fn kept(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.members.len()).collect();
        let p = |place: &usize| self.probabilities.get(*place).copied().unwrap_or(0.0);
        order.sort_by(|a, b| p(b).total_cmp(&p(a)));
        order.truncate(if self.members.len() > KEPT { KEPT } else { 1 });
        order.into_iter().map(|place| self.members[place]).collect()
    }

    /// Gives the losers their part of what the others have: a bracket of weight w = Σ kept keeps w, a loser gets w times its
    /// probability in the bracket, those kept share the rest as they did.
    fn spread(&self, fused: &mut [f64]) {
        let kept = self.kept();
        let weight: f64 = kept.iter().map(|index| fused[*index]).sum();
        let members = || self.members.iter().zip(&self.probabilities);
        let tail: f64 = members().filter(|(index, _)| !kept.contains(index)).map(|(_, p)| p).sum();
        for (index, p) in members() {
            fused[*index] = if kept.contains(index) { fused[*index] * (1.0 - tail) } else { weight * p };
        }
    }
}

/// What all rounds say together. `rounds`: the brackets of every round, the first round first. `last`: probabilities of the final
/// by index of the alternative, 0 for those that are not in it.
///
/// The winner of the final stays the winner: it was the only comparison of all the best.
#[must_use]
pub fn fuse(rounds: &[Vec<Bracket>], last: &[f64]) -> Vec<f64> {
    let winner = argmax(last.iter().copied()).unwrap_or(0);
    let mut fused = last.to_vec();
    rounds.iter().rev().flatten().for_each(|bracket| bracket.spread(&mut fused));
    fused.iter_mut().for_each(|p| *p = p.max(FLOOR));
    // An even bracket leaves its best no more than the others.
    let others = (0..fused.len()).filter(|&other| other != winner);
    let largest = others.map(|other| fused[other]).fold(0.0, f64::max);
    if fused.get(winner).is_some_and(|p| *p <= largest) {
        fused[winner] = largest * (1.0 + FLOOR);
    }
    let sum: f64 = fused.iter().sum();
    fused.iter_mut().for_each(|p| *p /= sum);
    fused
}

impl Reading {
    /// The reading of a fused distribution. `confidence`, `stderr` and `agreement` are those of the final's winner, whose spread is
    /// scaled like its probability.
    #[must_use]
    pub fn of_rounds(probabilities: Vec<f64>, last: &LastRound) -> Self {
        let winner = argmax(probabilities.iter().copied()).unwrap_or(0);
        let confidence = probabilities.get(winner).copied().unwrap_or(0.0);
        Self {
            winner,
            confidence,
            stderr: last.stderr.map(|stderr| stderr * confidence / last.confidence),
            agreement: last.agreement,
            entropy_nats: entropy_nats(&probabilities),
            hesitation: hesitation(&probabilities),
            probabilities,
        }
    }
}

/// What the final said of its winner.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LastRound {
    pub confidence: f64,
    pub stderr: Option<f64>,
    pub agreement: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(count: usize) -> Vec<usize> {
        (0..count).collect()
    }

    #[test]
    fn brackets_are_balanced_and_a_final_of_their_best_fits() {
        for count in 27..=255 {
            let brackets = Bracket::split(&all(count), 26);
            let sizes: Vec<usize> = brackets.iter().map(|bracket| bracket.members.len()).collect();
            let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
            assert!(most - least <= 1 && *most <= 26 && *least >= 2, "{count}: {sizes:?}");
            assert_eq!(
                brackets.iter().flat_map(|bracket| bracket.members.clone()).collect::<Vec<_>>(),
                all(count)
            );
            assert!(brackets.len() * KEPT <= 24);
        }
    }

    #[test]
    fn a_pair_sends_one_and_of_equals_the_first_go_on() {
        let bracket = |members: Vec<usize>, probabilities: Vec<f64>| Bracket { members, probabilities };
        assert_eq!(bracket(vec![3, 9], vec![0.4, 0.6]).kept(), [9]);
        assert_eq!(bracket(vec![4, 5, 6], vec![0.3, 0.4, 0.3]).kept(), [5, 4]);
    }

    #[test]
    fn a_bracket_keeps_its_weight_and_its_losers_get_their_part_of_it() {
        let first = vec![
            Bracket { members: vec![0, 1, 2], probabilities: vec![0.7, 0.1, 0.2] },
            Bracket { members: vec![3, 4, 5], probabilities: vec![0.06, 0.9, 0.04] },
        ];
        let fused = fuse(&[first], &[0.1, 0.0, 0.1, 0.2, 0.6, 0.0]);
        let expected = [0.1 * 0.9, 0.2 * 0.1, 0.1 * 0.9, 0.2 * 0.96, 0.6 * 0.96, 0.8 * 0.04];
        for (found, wanted) in fused.iter().zip(expected) {
            assert!((found - wanted).abs() < 1e-9, "{fused:?}");
        }
    }

    #[test]
    fn the_winner_of_the_final_wins_and_nobody_is_ruled_out() {
        let mut first = Bracket::split(&all(52), 26);
        first.iter_mut().for_each(|bracket| bracket.probabilities = vec![1.0 / 26.0; 26]);
        let mut last = vec![0.0; 52];
        (last[1], last[26], last[27]) = (0.4, 0.3, 0.3);
        let fused = fuse(&[first], &last);
        assert_eq!(argmax(fused.iter().copied()), Some(1));
        assert!((fused.iter().sum::<f64>() - 1.0).abs() < 1e-12 && fused.iter().all(|&p| p > 0.0));
    }

    #[test]
    fn the_spread_of_the_winner_is_scaled_with_it() {
        let last = LastRound { confidence: 0.8, stderr: Some(0.04), agreement: Some(0.75) };
        let reading = Reading::of_rounds(vec![0.4, 0.35, 0.25], &last);
        assert_eq!((reading.winner, reading.confidence, reading.agreement), (0, 0.4, Some(0.75)));
        assert!((reading.stderr.unwrap() - 0.02).abs() < 1e-12);
    }
}
