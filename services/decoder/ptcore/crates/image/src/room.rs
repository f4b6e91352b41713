//! How much may be unpacked.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// Bytes that what is packed in files may still become, of all files that are looked for with it: a copy has the same
/// bytes.
#[derive(Clone, Debug)]
pub struct Room(Arc<AtomicU64>);

impl Room {
    pub fn new(bytes: u64) -> Room {
        Room(Arc::new(AtomicU64::new(bytes)))
    }

    /// `None` where there are not so many.
    pub(crate) fn take(&self, bytes: u64) -> Option<()> {
        let take = |left: u64| left.checked_sub(bytes);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok().map(drop)
    }
}

/// 4 GiB.
impl Default for Room {
    fn default() -> Self {
        Room::new(1 << 32)
    }
}
