//! A choice with more alternatives than the tokenizer has labels for: read in brackets, the best of each in a final.
//!
//! Only arithmetic: which alternatives stand in which bracket, who gets into the final, and what both rounds say together. Called by
//! `wide`. The way of putting them together is that of published servers of this contract.

use std::ops::Range;

/// Alternatives of one bracket: so many letters there are.
pub(super) const MOST: usize = 26;
/// How many of a bracket get into the final.
const FINALISTS: usize = 2;
/// Least probability of an alternative, so that none is ruled out by a read it was not in.
const FLOOR: f64 = 1e-6;

/// Neighbours in equal parts: as few as hold `count`, their sizes at most one apart.
pub(super) fn brackets(count: usize) -> Vec<Range<usize>> {
    let parts = count.div_ceil(MOST).max(1);
    (0..parts).map(|part| part * count / parts..(part + 1) * count / parts).collect()
}

/// The most probable of each bracket, in the order of the question. `first: [bracket][alternative of it]`
pub(super) fn finalists(brackets: &[Range<usize>], first: &[Vec<f64>]) -> Vec<usize> {
    let mut chosen = Vec::new();
    for (bracket, probabilities) in brackets.iter().zip(first) {
        let mut order: Vec<usize> = (0..probabilities.len()).collect();
        // Stable: of equals the first.
        order.sort_by(|&a, &b| probabilities[b].total_cmp(&probabilities[a]));
        order.truncate(FINALISTS);
        order.sort_unstable();
        chosen.extend(order.into_iter().map(|place| bracket.start + place));
    }
    chosen
}

/// One distribution over all alternatives. A bracket has what its finalists got in the final; within it, those who are not in the
/// final have the share that the bracket gave them. The winner of the final stays the winner.
///
/// `first: [bracket][alternative of it]`, `last: [finalists]`.
pub(super) fn fuse(
    brackets: &[Range<usize>],
    first: &[Vec<f64>],
    finalists: &[usize],
    last: &[f64],
) -> Vec<f64> {
    let in_final = |alternative: usize| {
        finalists.iter().position(|&other| other == alternative).and_then(|place| last.get(place)).copied()
    };
    let mut fused = Vec::new();
    for (bracket, probabilities) in brackets.iter().zip(first) {
        let of_bracket: f64 = bracket.clone().filter_map(in_final).sum();
        let outside =
            bracket.clone().zip(probabilities).filter(|(alternative, _)| in_final(*alternative).is_none());
        let tail: f64 = outside.map(|(_, p)| p).sum();
        fused.extend(bracket.clone().zip(probabilities).map(|(alternative, p)| {
            in_final(alternative).map_or(of_bracket * p, |last| last * (1.0 - tail)).max(FLOOR)
        }));
    }
    let best = (0..last.len()).fold(0, |best, place| if last[place] > last[best] { place } else { best });
    if let Some(&winner) = finalists.get(best) {
        // An even bracket leaves its finalists no more than the others.
        let others = (0..fused.len()).filter(|&other| other != winner);
        let largest = others.map(|other| fused[other]).fold(0.0, f64::max);
        if fused[winner] <= largest {
            fused[winner] = largest * (1.0 + FLOOR);
        }
    }
    let sum: f64 = fused.iter().sum();
    fused.iter_mut().for_each(|p| *p /= sum);
    fused
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_are_balanced_and_the_final_fits() {
        for count in 2..=255 {
            let brackets = brackets(count);
            let sizes: Vec<usize> = brackets.iter().map(ExactSizeIterator::len).collect();
            let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
            assert!(most - least <= 1 && *most <= MOST && *least >= 2, "{count}: {sizes:?}");
            assert_eq!((brackets[0].start, brackets[brackets.len() - 1].end), (0, count));
            assert!(brackets.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert!(brackets.len() * FINALISTS <= 24);
        }
    }

    #[test]
    fn what_both_rounds_say_is_one_distribution() {
        let brackets = [0..3, 3..6];
        let first = [vec![0.7, 0.1, 0.2], vec![0.05, 0.9, 0.05]];
        let chosen = finalists(&brackets, &first);
        assert_eq!(chosen, [0, 2, 3, 4]);
        let fused = fuse(&brackets, &first, &chosen, &[0.1, 0.1, 0.2, 0.6]);
        // P(first) = 0.2, of which 0.1 goes to the one that is not in the final.
        let expected = [0.1 * 0.9, 0.2 * 0.1, 0.1 * 0.9, 0.2 * 0.95, 0.6 * 0.95, 0.8 * 0.05];
        for (found, wanted) in fused.iter().zip(expected) {
            assert!((found - wanted).abs() < 1e-9, "{fused:?}");
        }
    }

    #[test]
    fn the_winner_of_the_final_wins_and_nobody_is_ruled_out() {
        let brackets = brackets(52);
        let even = vec![vec![1.0 / 26.0; 26]; 2];
        let chosen = finalists(&brackets, &even);
        assert_eq!(chosen, [0, 1, 26, 27]);
        let fused = fuse(&brackets, &even, &chosen, &[0.0, 0.4, 0.3, 0.3]);
        let best = (0..52).fold(0, |best, n| if fused[n] > fused[best] { n } else { best });
        assert_eq!(best, 1);
        assert!((fused.iter().sum::<f64>() - 1.0).abs() < 1e-12 && fused.iter().all(|&p| p > 0.0));
    }
}
