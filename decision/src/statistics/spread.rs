//! How far several distributions over the same answers are apart.

use crate::probability::entropy_nats;

/// Entropy of the mean less the mean of the entropies, in nats: 0 when all are alike, at most ln n. It is the part of the doubt that
/// comes from disagreement (BALD, Houlsby 2011). `None` without distributions or where their lengths differ.
pub fn jensen_shannon_nats(distributions: &[Vec<f64>]) -> Option<f64> {
    let first = distributions.first()?;
    if distributions.iter().any(|other| other.len() != first.len()) {
        return None;
    }
    let n = distributions.len() as f64;
    let mean: Vec<f64> =
        (0..first.len()).map(|index| distributions.iter().map(|p| p[index]).sum::<f64>() / n).collect();
    let inner = distributions.iter().map(|p| entropy_nats(p)).sum::<f64>() / n;
    Some((entropy_nats(&mean) - inner).max(0.0))
}

/// Half the sum of the differences: the largest difference in probability of any set of answers. `None` where the lengths differ.
pub fn total_variation(left: &[f64], right: &[f64]) -> Option<f64> {
    let distance = || left.iter().zip(right).map(|(l, r)| (l - r).abs()).sum::<f64>() / 2.0;
    (left.len() == right.len()).then(distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let (yes, no, even) = (vec![1.0, 0.0], vec![0.0, 1.0], vec![0.5, 0.5]);
        assert_eq!(jensen_shannon_nats(&[]), None);
        assert_eq!(jensen_shannon_nats(&[yes.clone(), vec![1.0]]), None);
        assert_eq!(jensen_shannon_nats(&[even.clone(), even.clone()]), Some(0.0));
        assert_eq!(jensen_shannon_nats(std::slice::from_ref(&yes)), Some(0.0));
        let apart = jensen_shannon_nats(&[yes.clone(), no.clone()]).unwrap();
        assert!((apart - std::f64::consts::LN_2).abs() < 1e-12);
        assert_eq!(total_variation(&yes, &no), Some(1.0));
        assert_eq!(total_variation(&yes, &even), Some(0.5));
        assert_eq!((total_variation(&[], &[]), total_variation(&yes, &[1.0])), (Some(0.0), None));
    }
}
