//! Where libipt takes compressed returns.
//!
//! Each near return takes its call from the stack (SDM section "Indirect Transfer Compression for Returns"). libipt takes none
//! for a return of which a TIP tells the target, so that the next compressed one goes elsewhere.

/// Entries the processor keeps, and libipt.
const DEPTH: usize = 64;

/// The addresses behind calls that were not returned from: here, and as libipt has them.
#[derive(Default)]
pub struct Returns {
    calls: Vec<u64>,
    libipts: Vec<u64>,
}

impl Returns {
    pub fn call(&mut self, behind: u64) {
        for calls in [&mut self.calls, &mut self.libipts] {
            calls.push(behind);
            calls.drain(..calls.len().saturating_sub(DEPTH));
        }
    }

    /// Where libipt takes the return, if that is elsewhere. One that goes to its call is compressed.
    pub fn returns(&mut self, target: u64) -> Option<u64> {
        if self.calls.pop() != Some(target) {
            return None;
        }
        self.libipts.pop().filter(|&libipts| libipts != target)
    }

    pub fn clear(&mut self) {
        self.calls.clear();
        self.libipts.clear();
    }
}
