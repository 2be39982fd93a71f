//! What the orders of a case said, and the figures over many.

use decision::statistics::{Graded, jensen_shannon_nats, total_variation};
use serde::{Deserialize, Serialize};

use super::super::record::Record;
use super::super::summary::mean;

/// A gate also fires from this part of the most possible disagreement of two orders.
pub(super) const DISAGREEMENT: f64 = 0.06;

/// What the orders said.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Orders {
    pub(super) orders: usize,
    /// Answer in each order, the case's own first.
    pub(super) answers: Vec<String>,
    /// Where the answer stood in each order, from 0.
    pub(super) places: Vec<usize>,
    pub(super) alternatives: usize,
    /// Share of the other orders with another answer than the first.
    pub(super) flip_rate: f64,
    /// Doubt that comes from the order, in nats.
    pub(super) jsd_nats: f64,
    /// Largest difference of the mirror's distribution to the first.
    pub(super) tvd_mirror: Option<f64>,
    /// The mean over all orders.
    pub(super) ensemble_accurate: bool,
    pub(super) ensemble_brier: f64,
    pub(super) brier: f64,
    /// First order and mirror disagree, hesitate, or are far apart.
    pub(super) disagree: bool,
    pub(super) hesitation: f64,
    pub(super) jsd_mirror_share: f64,
}

/// `all`: for each order the distribution in the case's own order, the answer and its place; the first is the case's own.
pub(super) fn of_case(all: &[(Vec<f64>, String, usize)], mirror: Option<usize>, gold: usize) -> Orders {
    let distributions: Vec<Vec<f64>> = all.iter().map(|(p, ..)| p.clone()).collect();
    let (first, alternatives) = (&all[0], distributions[0].len());
    let n = distributions.len() as f64;
    let average: Vec<f64> =
        (0..alternatives).map(|index| distributions.iter().map(|p| p[index]).sum::<f64>() / n).collect();
    let flips = all[1..].iter().filter(|(_, name, _)| *name != first.1).count();
    let pair = mirror.and_then(|mirror| all.get(mirror));
    let brier = |p: &[f64]| Graded::new(p.to_vec(), gold).map_or(0.0, |graded| graded.brier());
    Orders {
        orders: all.len(),
        answers: all.iter().map(|(_, name, _)| name.clone()).collect(),
        places: all.iter().map(|(.., place)| *place).collect(),
        alternatives,
        flip_rate: flips as f64 / (all.len() - 1).max(1) as f64,
        jsd_nats: jensen_shannon_nats(&distributions).unwrap_or(0.0),
        tvd_mirror: pair.and_then(|pair| total_variation(&first.0, &pair.0)),
        ensemble_accurate: Graded::new(average.clone(), gold).is_some_and(|graded| graded.correct()),
        ensemble_brier: brier(&average),
        brier: brier(&first.0),
        disagree: pair.is_some_and(|pair| pair.1 != first.1),
        hesitation: decision::hesitation(&first.0),
        jsd_mirror_share: pair
            .and_then(|pair| jensen_shannon_nats(&[first.0.clone(), pair.0.clone()]))
            .unwrap_or(0.0)
            / std::f64::consts::LN_2,
    }
}

pub(super) struct Figures {
    pub(super) cases: usize,
    pub(super) orders: usize,
    pub(super) flip_rate: f64,
    pub(super) flipped: usize,
    pub(super) jsd_nats: f64,
    pub(super) tvd_mirror: Option<f64>,
    pub(super) single: f64,
    pub(super) ensemble: f64,
    pub(super) brier: f64,
    pub(super) ensemble_brier: f64,
    pub(super) fired: usize,
    /// Share of the wrong first answers at which the gate fires.
    pub(super) recall: Option<f64>,
    /// Share of the right ones.
    pub(super) false_alarms: Option<f64>,
}

impl Figures {
    /// Over the cases with all their orders; `None` without any.
    pub(super) fn of(records: &[Record], gate: f64) -> Option<Self> {
        let measured: Vec<(bool, Orders)> = records
            .iter()
            .filter(|record| record.error.is_none())
            .filter_map(|record| Some((record.accurate, record.get("permutation")?)))
            .collect();
        let average = |of: &dyn Fn(&Orders) -> f64| {
            mean(&measured.iter().map(|(_, orders)| of(orders)).collect::<Vec<_>>())
        };
        let share = |right: bool| {
            let of: Vec<bool> = measured
                .iter()
                .filter(|(accurate, _)| *accurate == right)
                .map(|(_, orders)| fires(orders, gate))
                .collect();
            mean(&of.iter().map(|fires| f64::from(u8::from(*fires))).collect::<Vec<_>>())
        };
        let one = |yes: bool| f64::from(u8::from(yes));
        Some(Self {
            cases: measured.len(),
            orders: measured.iter().map(|(_, orders)| orders.orders).sum(),
            flip_rate: average(&|orders| orders.flip_rate)?,
            flipped: measured.iter().filter(|(_, orders)| orders.flip_rate > 0.0).count(),
            jsd_nats: average(&|orders| orders.jsd_nats)?,
            tvd_mirror: mean(
                &measured.iter().filter_map(|(_, orders)| orders.tvd_mirror).collect::<Vec<_>>(),
            ),
            single: mean(&measured.iter().map(|(accurate, _)| one(*accurate)).collect::<Vec<_>>())?,
            ensemble: average(&|orders| one(orders.ensemble_accurate))?,
            brier: average(&|orders| orders.brier)?,
            ensemble_brier: average(&|orders| orders.ensemble_brier)?,
            fired: measured.iter().filter(|(_, orders)| fires(orders, gate)).count(),
            recall: share(false),
            false_alarms: share(true),
        })
    }
}

fn fires(orders: &Orders, gate: f64) -> bool {
    orders.disagree || orders.hesitation >= gate || orders.jsd_mirror_share >= DISAGREEMENT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_by_hand() {
        // Own order says a, the rotation b, the mirror a.
        let all = [
            (vec![0.8, 0.2, 0.0], "a".to_owned(), 0),
            (vec![0.2, 0.8, 0.0], "b".to_owned(), 0),
            (vec![0.8, 0.2, 0.0], "a".to_owned(), 2),
        ];
        let found = of_case(&all, Some(2), 0);
        assert_eq!((found.flip_rate, found.tvd_mirror, found.disagree), (0.5, Some(0.0), false));
        assert_eq!((found.ensemble_accurate, found.jsd_mirror_share), (true, 0.0));
        // The mean is .6, .4: its entropy less that of .8, .2.
        let h = |p: f64| -(p * p.ln() + (1.0 - p) * (1.0 - p).ln());
        assert!((found.jsd_nats - (h(0.6) - h(0.8))).abs() < 1e-12);
        assert!((found.ensemble_brier - 0.32).abs() < 1e-12 && (found.brier - 0.08).abs() < 1e-12);
        let apart = of_case(&all[..2], Some(1), 0);
        assert!(apart.disagree && fires(&apart, 1.0));
        assert!((apart.tvd_mirror.unwrap() - 0.6).abs() < 1e-12);
        assert!(!fires(&found, 1.0) && fires(&found, 0.16));
    }
}
