//! What n reads of one slot say together: the mean distribution, its winner, and how much the reads agree.
//!
//! Made by the server from the softmax of every draw; becomes an `Answer`. Next: `answer`.

use crate::error::ReadingError;
use crate::probability::{argmax, entropy_nats, hesitation};

/// How far the sum of a read may be from 1.
const SUM_TOLERANCE: f64 = 1e-6;

/// The reads of one slot, averaged.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// Mean over the reads. `[labels]`
    pub probabilities: Vec<f64>,
    /// Index of the most probable label; the first of equals.
    pub winner: usize,
    /// Mean probability of the winner.
    pub confidence: f64,
    /// sqrt(sample variance of the winner's probability / n); only for n > 1.
    pub stderr: Option<f64>,
    /// Share of reads in which no label beat the winner; only for n > 1.
    pub agreement: Option<f64>,
    /// Entropy of the mean distribution.
    pub entropy_nats: f64,
    /// `entropy_nats / ln labels`, 0…1.
    pub hesitation: f64,
}

impl Reading {
    /// Averages the reads of one slot. `reads: [n][labels]`, every read a distribution.
    ///
    /// Errors: no read, no label, reads of different length, a read that is no distribution.
    pub fn from_reads(reads: &[Vec<f64>]) -> Result<Self, ReadingError> {
        let labels = reads.first().map_or(0, Vec::len);
        if labels == 0 {
            return Err(ReadingError::Empty { what: "no reads, or a read of no labels" });
        }
        for (number, read) in reads.iter().enumerate() {
            check_distribution(number, read, labels)?;
        }
        let n = reads.len() as f64;
        let probabilities: Vec<f64> =
            (0..labels).map(|label| reads.iter().map(|read| read[label]).sum::<f64>() / n).collect();
        // `labels` is not zero, so there is a largest value.
        let winner = argmax(probabilities.iter().copied()).unwrap_or(0);
        let confidence = probabilities[winner];
        let several = reads.len() > 1;
        Ok(Self {
            stderr: several.then(|| {
                let squares: f64 = reads.iter().map(|read| (read[winner] - confidence).powi(2)).sum();
                (squares / (n - 1.0) / n).sqrt()
            }),
            agreement: several.then(|| {
                let agreeing = reads.iter().filter(|read| read.iter().all(|&p| p <= read[winner])).count();
                agreeing as f64 / n
            }),
            entropy_nats: entropy_nats(&probabilities),
            hesitation: hesitation(&probabilities),
            probabilities,
            winner,
            confidence,
        })
    }
}

fn check_distribution(number: usize, read: &[f64], labels: usize) -> Result<(), ReadingError> {
    if read.len() != labels {
        return Err(ReadingError::WrongCount {
            what: "labels of a read",
            expected: labels,
            found: read.len(),
        });
    }
    if let Some(value) = read.iter().find(|p| !(0.0..=1.0 + SUM_TOLERANCE).contains(*p)) {
        return Err(ReadingError::NoDistribution { read: number, why: format!("it holds {value}") });
    }
    let sum: f64 = read.iter().sum();
    if (sum - 1.0).abs() > SUM_TOLERANCE {
        return Err(ReadingError::NoDistribution { read: number, why: format!("its sum is {sum}") });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_read_has_no_spread() {
        let reading = Reading::from_reads(&[vec![0.1, 0.9]]).unwrap();
        assert_eq!(reading.winner, 1);
        assert!((reading.confidence - 0.9).abs() < 1e-15);
        assert_eq!((reading.stderr, reading.agreement), (None, None));
    }

    #[test]
    fn several_reads_give_mean_stderr_and_agreement() {
        let reading = Reading::from_reads(&[vec![0.8, 0.2], vec![0.4, 0.6], vec![0.9, 0.1]]).unwrap();
        assert_eq!(reading.winner, 0);
        assert!((reading.confidence - 0.7).abs() < 1e-12);
        // Sample variance of .8, .4, .9 is 0.07.
        assert!((reading.stderr.unwrap() - (0.07_f64 / 3.0).sqrt()).abs() < 1e-12);
        assert!((reading.agreement.unwrap() - 2.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn a_read_that_ties_with_the_winner_agrees() {
        let reading = Reading::from_reads(&[vec![0.5, 0.5], vec![0.2, 0.8]]).unwrap();
        assert_eq!(reading.winner, 1);
        assert_eq!(reading.agreement, Some(1.0));
    }

    #[test]
    fn faulty_reads_are_refused() {
        assert!(matches!(Reading::from_reads(&[]), Err(ReadingError::Empty { .. })));
        assert!(matches!(Reading::from_reads(&[vec![]]), Err(ReadingError::Empty { .. })));
        let ragged = Reading::from_reads(&[vec![0.5, 0.5], vec![1.0]]);
        assert!(matches!(ragged, Err(ReadingError::WrongCount { expected: 2, found: 1, .. })));
        for bad in [vec![f64::NAN, 1.0], vec![0.4, 0.4], vec![-0.5, 1.5], vec![f64::INFINITY, 0.0]] {
            assert!(matches!(Reading::from_reads(&[bad]), Err(ReadingError::NoDistribution { .. })));
        }
    }
}
