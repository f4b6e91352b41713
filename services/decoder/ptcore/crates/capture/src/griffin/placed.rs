//! Code that takes the place of other code.

use std::collections::BTreeMap;

/// Code by address; none overlaps another.
pub type Pages<'d> = BTreeMap<u64, &'d [u8]>;

/// Puts code over what stood there. Returns whether that was other code.
pub fn place<'d>(pages: &mut Pages<'d>, base: u64, bytes: &'d [u8]) -> bool {
    if bytes.is_empty() {
        return false;
    }
    let end = base.saturating_add(bytes.len() as u64);
    let reaches = |(&at, old): &(&u64, &&[u8])| at.saturating_add(old.len() as u64) > base;
    let over: Vec<_> = pages.range(..end).rev().take_while(reaches).map(|(&at, &old)| (at, old)).collect();
    let mut other = false;
    for (at, old) in over {
        pages.remove(&at);
        let (from, to) = (base.max(at), end.min(at.saturating_add(old.len() as u64)));
        let (head, rest) = old.split_at((from - at) as usize);
        let (replaced, tail) = rest.split_at((to - from) as usize);
        other |= replaced != &bytes[(from - base) as usize..(to - base) as usize];
        for (at, part) in [(at, head), (to, tail)] {
            if !part.is_empty() {
                pages.insert(at, part);
            }
        }
    }
    pages.insert(base, bytes);
    other
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_last_stands_there() {
        let mut pages = Pages::new();
        assert!(!place(&mut pages, 10, b"aaaaaa"));
        assert!(!place(&mut pages, 20, b"bbbb"));
        assert!(!place(&mut pages, 12, b"aa"), "the same again");
        assert!(place(&mut pages, 12, b"cccccccccc"));
        let all: Vec<_> = pages.into_iter().collect();
        assert_eq!(all, [(10, &b"aa"[..]), (12, b"cccccccccc"), (22, b"bb")]);
    }
}
