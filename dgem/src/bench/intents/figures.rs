//! The figures over the answers of both reads.

use decision::Answer;
use decision::statistics::Confusion;

use super::super::record::Record;
use super::super::summary::mean;
use super::{DOMAIN, INTENT, OUT_OF_SCOPE, OUT_TIER, said};

pub(super) struct Figures {
    /// Cases in all, also those that failed.
    pub(super) cases: usize,
    pub(super) candidates: usize,
    pub(super) first: usize,
    pub(super) last: usize,
    pub(super) tie_breaks: usize,
    pub(super) mended: usize,
    pub(super) spoilt: usize,
    /// Right and asked; `None` where no domain was asked for.
    pub(super) domains: Option<(usize, usize)>,
    pub(super) in_domain: (usize, usize),
    pub(super) oos: Confusion,
    /// Of first reads that are wrong, right, and all.
    pub(super) confidence: [Option<f64>; 3],
    pub(super) entropy: [Option<f64>; 3],
}

impl Figures {
    pub(super) fn of(records: &[Record]) -> Self {
        let mut figures = Self {
            cases: records.len(),
            candidates: 0,
            first: 0,
            last: 0,
            tie_breaks: 0,
            mended: 0,
            spoilt: 0,
            domains: None,
            in_domain: (0, 0),
            oos: Confusion::default(),
            confidence: [None; 3],
            entropy: [None; 3],
        };
        let mut reads: Vec<(bool, &Answer)> = Vec::new();
        for record in records {
            let asked = record.answers.get(INTENT);
            let judged = asked.filter(|_| record.error.is_none());
            figures.candidates = figures.candidates.max(asked.map_or(0, |judged| judged.alternatives));
            if let Some(domain) = record.answers.get(DOMAIN) {
                let (right, all) = figures.domains.get_or_insert((0, 0));
                *right += usize::from(domain.correct);
                *all += 1;
            }
            let out = record.tier == OUT_TIER;
            let says_out = judged.and_then(|_| said(record)).is_some_and(|said| said == OUT_OF_SCOPE);
            figures.oos.add(out, says_out);
            if !out {
                figures.in_domain.0 += usize::from(judged.is_some() && record.accurate);
                figures.in_domain.1 += 1;
            }
            // A case that failed is wrong, and has nothing else to count.
            let Some(judged) = judged else { continue };
            figures.first += usize::from(judged.correct);
            figures.last += usize::from(record.accurate);
            figures.tie_breaks += usize::from(record.more.contains_key("tie_break"));
            figures.mended += usize::from(record.accurate && !judged.correct);
            figures.spoilt += usize::from(!record.accurate && judged.correct);
            reads.extend(judged.answer.as_ref().map(|answer| (judged.correct, answer)));
        }
        let average = |keep: &dyn Fn(bool) -> bool, of: &dyn Fn(&Answer) -> f64| {
            mean(
                &reads
                    .iter()
                    .filter(|(right, _)| keep(*right))
                    .map(|(_, answer)| of(answer))
                    .collect::<Vec<_>>(),
            )
        };
        let three = |of: &dyn Fn(&Answer) -> f64| {
            [average(&|right| !right, of), average(&|right| right, of), average(&|_| true, of)]
        };
        figures.confidence = three(&|answer| answer.confidence);
        figures.entropy = three(&|answer| answer.entropy_nats);
        figures
    }

    pub(super) fn pct(&self, count: usize) -> Option<f64> {
        (self.cases > 0).then(|| 100.0 * count as f64 / self.cases as f64)
    }

    pub(super) fn domain_share(&self) -> Option<f64> {
        let (right, all) = self.domains?;
        (all > 0).then(|| right as f64 / all as f64)
    }
}
