//! Percentiles of a list of measurements.

/// The value below which this share of the measurements lies, with linear interpolation at `share · (n − 1)`. `None` without any.
/// `values` need no order; none may be NaN.
pub fn percentile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = share.clamp(0.0, 1.0) * sorted.len().checked_sub(1)? as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    Some(below + (above - below) * place.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_by_hand() {
        let four = [40.0, 10.0, 30.0, 20.0];
        assert_eq!(percentile(&four, 0.5), Some(25.0));
        assert!((percentile(&four, 0.95).unwrap() - 38.5).abs() < 1e-12);
        assert_eq!((percentile(&four, 0.0), percentile(&four, 1.0)), (Some(10.0), Some(40.0)));
        assert_eq!((percentile(&[7.0], 0.95), percentile(&[], 0.5)), (Some(7.0), None));
        assert_eq!(percentile(&[2.0, 2.0, 2.0], 0.3), Some(2.0));
    }
}
