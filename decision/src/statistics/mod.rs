//! Figures over graded answers: how often they are right, how well their probabilities say so, and how sure the figure itself is.
//!
//! `dgem bench` and its sisters call these on the cases of a receipt. Nothing here returns NaN: where there is nothing to measure
//! the answer is `None`. [`Scores`] is the usual set; the other files hold one figure each. The running sums for millions of rows
//! are in `calibration`.

mod compare;
mod confusion;
mod percentile;
mod proportion;
mod scores;
mod spread;
mod temperature;

pub use compare::mcnemar_p;
pub use confusion::Confusion;
pub use percentile::percentile;
pub use proportion::{chance_corrected, wilson};
pub use scores::{Graded, Scores, auroc};
pub use spread::{jensen_shannon_nats, total_variation};
pub use temperature::{FOLDS, TEMPERATURES, Temperature, fold, held_out, tempered};
