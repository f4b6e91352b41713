//! Work that threads share.

use std::panic::resume_unwind;
use std::thread;

/// Does all items at once, each in a thread; what came of them, in their order. Unwinds when one of them does, behind all of them.
///
/// The first one is done by this thread. Were it to wait instead, the scheduler could put two new ones on one core until it balances
/// the cores next, some milliseconds later: they begin while this thread still keeps another one busy.
pub fn share<T: Send, R: Send>(items: impl IntoIterator<Item = T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let mut items = items.into_iter();
    let Some(first) = items.next() else { return Vec::new() };
    thread::scope(|scope| {
        let work = &work;
        let others: Vec<_> = items.map(|item| scope.spawn(move || work(item))).collect();
        let mut done = vec![work(first)];
        done.extend(others.into_iter().map(|other| other.join().unwrap_or_else(|panicked| resume_unwind(panicked))));
        done
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;
    use std::sync::Barrier;

    #[test]
    fn all_items_are_done_at_once_and_told_in_their_order() {
        let all_are_here = Barrier::new(3);
        let done = share(0..3, |item| {
            all_are_here.wait();
            (item, thread::current().id())
        });
        assert_eq!(done.iter().map(|&(item, _)| item).collect::<Vec<_>>(), [0, 1, 2]);
        let here: Vec<_> = done.iter().map(|&(_, thread)| thread == thread::current().id()).collect();
        assert_eq!(here, [true, false, false]);
        assert_eq!(share([(); 0], |()| ()), []);
    }

    #[test]
    fn what_unwinds_in_one_unwinds_here() {
        for unwinds in 0..3 {
            assert!(catch_unwind(|| share(0..3, |item| assert_ne!(item, unwinds))).is_err());
        }
    }
}
