//! A share of successes: how sure it is, and how much of it is luck.

/// Standard normal quantile of a two-sided interval of 95 %.
const Z: f64 = 1.959_963_984_540_054;

/// The interval in which the true share lies with a confidence of 95 % (Wilson 1927): it stays within 0…1 and works for few cases.
/// `None` without cases.
pub fn wilson(successes: u64, cases: u64) -> Option<(f64, f64)> {
    if cases == 0 || successes > cases {
        return None;
    }
    let (n, z2) = (cases as f64, Z * Z);
    let share = successes as f64 / n;
    let middle = (share + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = Z / (1.0 + z2 / n) * (share * (1.0 - share) / n + z2 / (4.0 * n * n)).sqrt();
    // At either end the bound is exact; rounding would leave it an ulp off.
    let low = if successes == 0 { 0.0 } else { (middle - half).max(0.0) };
    let high = if successes == cases { 1.0 } else { (middle + half).min(1.0) };
    Some((low, high))
}

/// Accuracy above luck as a share of what was to be had: 0 is guessing (or worse), 1 is perfect. `None` where guessing is perfect.
pub fn chance_corrected(accuracy: f64, chance: f64) -> Option<f64> {
    (chance < 1.0).then(|| ((accuracy - chance) / (1.0 - chance)).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wilson_by_hand() {
        // 8 of 10, from the formula: (0.8 + 0.19207) / 1.38415 ± 0.2265.
        let (low, high) = wilson(8, 10).unwrap();
        assert!((low - 0.490_16).abs() < 1e-4 && (high - 0.943_32).abs() < 1e-4, "{low} {high}");
        // Of one case that is right: n / (n + z²).
        let (low, high) = wilson(1, 1).unwrap();
        assert!((low - 1.0 / (1.0 + Z * Z)).abs() < 1e-12);
        assert_eq!(high, 1.0);
        let (low, high) = wilson(0, 1).unwrap();
        assert_eq!(low, 0.0);
        assert!((high - Z * Z / (1.0 + Z * Z)).abs() < 1e-12);
        assert_eq!((wilson(0, 0), wilson(2, 1)), (None, None));
    }

    #[test]
    fn luck_is_taken_off() {
        assert_eq!(chance_corrected(1.0, 0.5), Some(1.0));
        assert_eq!(chance_corrected(0.5, 0.5), Some(0.0));
        assert_eq!(chance_corrected(0.0, 0.5), Some(0.0));
        assert!((chance_corrected(0.8, 0.2).unwrap() - 0.75).abs() < 1e-12);
        assert_eq!(chance_corrected(1.0, 1.0), None);
    }
}
