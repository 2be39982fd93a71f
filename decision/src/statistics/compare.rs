//! Whether two runs over the same cases differ by more than luck.

/// The two-sided exact p-value of McNemar's test: `broken` cases were right before and are wrong now, `mended` the other way round.
/// The probability of a split at least as uneven, if each of these cases could as well have gone the other way.
pub fn mcnemar_p(broken: u64, mended: u64) -> f64 {
    let n = broken + mended;
    let fewer = broken.min(mended);
    // ln of C(n, i) / 2^n, built up from i = 0.
    let mut term = -(n as f64) * std::f64::consts::LN_2;
    let mut sum = term.exp();
    for i in 0..fewer {
        term += ((n - i) as f64).ln() - ((i + 1) as f64).ln();
        sum += term.exp();
    }
    (2.0 * sum).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mcnemar_by_hand() {
        assert_eq!((mcnemar_p(0, 0), mcnemar_p(1, 0), mcnemar_p(3, 3)), (1.0, 1.0, 1.0));
        // 2 · (1/2)^5, and 2 · (1 + 6) / 2^6.
        assert!((mcnemar_p(0, 5) - 0.0625).abs() < 1e-12);
        assert!((mcnemar_p(5, 1) - 0.218_75).abs() < 1e-12);
        assert_eq!(mcnemar_p(2, 9).to_bits(), mcnemar_p(9, 2).to_bits());
        // Many cases do not underflow into nonsense.
        assert!((0.0..1e-200).contains(&mcnemar_p(0, 5_000)));
        assert!(mcnemar_p(2_480, 2_520) > 0.5);
    }
}
