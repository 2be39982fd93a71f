//! The places of the queue: one per canvas, taken together and given back when the job begins or is dropped.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use crate::metrics::Metrics;

/// Places in the queue, given back when dropped.
#[derive(Debug)]
pub(super) struct Places {
    permit: OwnedSemaphorePermit,
    metrics: Arc<Metrics>,
}

impl Places {
    pub(super) fn new(permit: OwnedSemaphorePermit, metrics: &Arc<Metrics>) -> Self {
        metrics.places_taken(permit.num_permits());
        Self { permit, metrics: Arc::clone(metrics) }
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        self.metrics.places_freed(self.permit.num_permits());
    }
}
