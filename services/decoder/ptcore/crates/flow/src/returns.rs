//! The stack of return addresses behind compressed returns.

/// Entries the processor keeps (SDM section "RET Compression").
const DEPTH: usize = 64;

/// Keeps the newest 64 return addresses, each with the cached block of its call.
pub struct ReturnStack {
    entries: [(u64, u32); DEPTH],
    top: usize,
    depth: usize,
}

impl ReturnStack {
    pub fn new() -> Self {
        ReturnStack { entries: [(0, 0); DEPTH], top: 0, depth: 0 }
    }

    pub fn clear(&mut self) {
        self.depth = 0;
    }

    #[inline(always)]
    pub fn push(&mut self, address: u64, call: u32) {
        self.top = (self.top + 1) % DEPTH;
        self.entries[self.top] = (address, call);
        self.depth = (self.depth + 1).min(DEPTH);
    }

    /// `high` entries were pushed and taken again.
    #[inline(always)]
    pub fn passed(&mut self, high: usize) {
        self.depth = self.depth.min(DEPTH - high);
    }

    #[inline(always)]
    pub fn peek(&self) -> Option<(u64, u32)> {
        (self.depth != 0).then(|| self.entries[self.top % DEPTH])
    }

    #[inline(always)]
    pub fn pop(&mut self) -> Option<(u64, u32)> {
        if self.depth == 0 {
            return None;
        }
        let entry = self.entries[self.top];
        self.top = self.top.wrapping_sub(1) % DEPTH;
        self.depth -= 1;
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_65_is_forgotten() {
        let mut stack = ReturnStack::new();
        for address in 0..65 {
            stack.push(address, 7);
        }
        for address in (1..65).rev() {
            assert_eq!(stack.pop(), Some((address, 7)));
        }
        assert_eq!(stack.pop(), None);
    }
}
