//! A bound on what packed parts of files may become.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// How many bytes may still be unpacked, of all files together: copies share the number.
#[derive(Clone, Debug)]
pub struct Room(Arc<AtomicU64>);

impl Room {
    pub fn new(bytes: u64) -> Room {
        Room(Arc::new(AtomicU64::new(bytes)))
    }

    /// `None`, and nothing is taken, where fewer are left.
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
