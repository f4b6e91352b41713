//! Calls as they are handed out.

use pt_calls::{Batch, Found, FunctionKey, LossRecord, Output, Records};

#[derive(Default)]
pub struct Gathered {
    /// How many calls may be handed out at once, how often some were, and the most of them.
    pub rows: usize,
    pub without_addresses: bool,
    pub batches: usize,
    pub most: usize,
    pub records: Records,
    pub functions: Vec<FunctionKey>,
    pub found: Vec<Found>,
    pub losses: Vec<LossRecord>,
}

impl Output for Gathered {
    fn rows(&self) -> usize {
        self.rows
    }

    fn takes_addresses(&self) -> bool {
        !self.without_addresses
    }

    fn take(&mut self, batch: Batch<'_>) {
        self.batches += 1;
        self.most = self.most.max(batch.calls.len());
        self.functions.extend(batch.functions);
        assert!(batch.calls.function.iter().all(|&number| (number as usize) < self.functions.len()));
        self.records.append(batch.calls);
        self.found.extend(batch.found);
        self.losses.append(batch.losses);
    }
}
