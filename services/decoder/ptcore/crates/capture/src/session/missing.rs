//! Packets that a session's recorder lost.

use crate::json::Node;
use crate::CaptureError;
use std::collections::HashMap;

/// Where packets are missing, by the key of the object: each of its segments says so of its own. Offsets are in order.
pub fn lost_offsets<'j>(manifest: &Node<'j>) -> Result<HashMap<&'j str, Vec<usize>>, CaptureError> {
    let mut lost: HashMap<_, Vec<_>> = HashMap::new();
    for segment in manifest.elements("segments")? {
        for offset in segment.elements("lost_offsets")? {
            lost.entry(segment.get("key")?.text()?).or_default().push(offset.address()? as usize);
        }
    }
    for offsets in lost.values_mut() {
        offsets.sort_unstable();
        offsets.dedup();
    }
    Ok(lost)
}
