//! Where calls go when they are over.

use crate::found::Found;
use crate::functions::FunctionKey;
use crate::losses::LossRecord;
use crate::records::Records;

/// What became known since the batch before.
pub struct Batch<'b> {
    /// Calls that are over, in the order in which they became known. Columns that are left may be used again.
    pub calls: &'b mut Records,
    /// The functions that calls name for the first time: their numbers follow those of the batches before.
    pub functions: &'b [FunctionKey],
    /// Concerns calls of batches before as well, and calls of this batch.
    pub found: &'b [Found],
    pub losses: &'b mut Vec<LossRecord>,
    /// The code image that the last block ran in.
    pub epoch: u32,
}

/// Takes calls in batches, so that what is kept of a stream does not grow with its length.
pub trait Output {
    /// How many calls may gather.
    fn rows(&self) -> usize;

    /// Whether calls are told with the addresses that they came from and led to.
    fn takes_addresses(&self) -> bool {
        true
    }

    fn take(&mut self, batch: Batch<'_>);
}

/// Keeps everything up to the end of the stream.
#[derive(Default)]
pub struct Kept {
    pub records: Records,
    pub losses: Vec<LossRecord>,
}

impl Output for Kept {
    fn rows(&self) -> usize {
        usize::MAX
    }

    fn take(&mut self, batch: Batch<'_>) {
        self.losses.append(batch.losses);
        if self.records.is_empty() {
            std::mem::swap(&mut self.records, batch.calls);
        } else {
            self.records.append(batch.calls);
        }
    }
}
