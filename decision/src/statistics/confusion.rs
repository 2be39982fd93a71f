//! How well one answer among several is recognised, such as "out of scope".

/// Cases by what is right and what was said, for one answer against all others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Confusion {
    /// It was right, and said.
    pub hits: u64,
    /// It was right, and something else was said, or nothing.
    pub misses: u64,
    /// It was said, and something else was right.
    pub false_alarms: u64,
}

impl Confusion {
    pub fn add(&mut self, right: bool, said: bool) {
        match (right, said) {
            (true, true) => self.hits += 1,
            (true, false) => self.misses += 1,
            (false, true) => self.false_alarms += 1,
            (false, false) => {}
        }
    }

    /// Share of the cases in which it was right that were recognised. `None` when there is none.
    pub fn recall(&self) -> Option<f64> {
        share(self.hits, self.hits + self.misses)
    }

    /// Share of the cases in which it was said that were right. `None` when it was never said.
    pub fn precision(&self) -> Option<f64> {
        share(self.hits, self.hits + self.false_alarms)
    }

    /// Harmonic mean of both. `None` when it was neither right nor said.
    pub fn f1(&self) -> Option<f64> {
        let all = 2 * self.hits + self.misses + self.false_alarms;
        share(2 * self.hits, all)
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let mut confusion = Confusion::default();
        assert_eq!((confusion.recall(), confusion.precision(), confusion.f1()), (None, None, None));
        confusion.add(false, false);
        assert_eq!((confusion.recall(), confusion.precision(), confusion.f1()), (None, None, None));
        confusion.add(true, false);
        assert_eq!((confusion.recall(), confusion.precision(), confusion.f1()), (Some(0.0), None, Some(0.0)));
        (0..3).for_each(|_| confusion.add(true, true));
        confusion.add(false, true);
        assert_eq!((confusion.recall(), confusion.precision()), (Some(0.75), Some(0.75)));
        assert!((confusion.f1().unwrap() - 0.75).abs() < 1e-12);
    }
}
