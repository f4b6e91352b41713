//! What threads are called, from records that stand in the order of cores and not of time.

use crate::on_core::Who;
use std::collections::BTreeMap;

enum Told {
    Comm(String),
    /// It is called as its parent.
    Fork(Who),
}

/// What was told of which thread, with its TSC ticks; 0 where that is not known.
#[derive(Default)]
pub struct ThreadNames(Vec<(u64, Who, Told)>);

impl ThreadNames {
    pub fn comm(&mut self, tsc: u64, thread: Who, name: String) {
        self.0.push((tsc, thread, Told::Comm(name)));
    }

    pub fn fork(&mut self, tsc: u64, thread: Who, parent: Who) {
        self.0.push((tsc, thread, Told::Fork(parent)));
    }

    /// The last name of each thread.
    pub fn last(mut self) -> BTreeMap<Who, String> {
        self.0.sort_by_key(|&(tsc, ..)| tsc);
        let mut names: BTreeMap<Who, (u64, String)> = BTreeMap::new();
        for (tsc, thread, told) in self.0 {
            match told {
                Told::Comm(name) => drop(names.insert(thread, (tsc, name))),
                // A number may be used again. Without times the child's own name may stand in front of its fork.
                Told::Fork(parent) if names.get(&thread).is_none_or(|&(since, _)| since < tsc) => {
                    if let Some((_, name)) = names.get(&parent).cloned() {
                        names.insert(thread, (tsc, name));
                    }
                }
                Told::Fork(_) => {}
            }
        }
        names.into_iter().map(|(thread, (_, name))| (thread, name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PID: u32 = 100;

    fn called(told: &[(u64, u32, Result<&str, u32>)]) -> Vec<(u32, String)> {
        let mut names = ThreadNames::default();
        for &(tsc, tid, told) in told {
            match told {
                Ok(name) => names.comm(tsc, (PID, tid), name.to_owned()),
                Err(parent) => names.fork(tsc, (PID, tid), (PID, parent)),
            }
        }
        names.last().into_iter().map(|((_, tid), name)| (tid, name)).collect()
    }

    #[test]
    fn a_thread_is_called_as_its_parent_was_when_it_began() {
        let named = [(100, "server".to_owned()), (101, "server".to_owned())];
        let (before, execs, forks) = ((5, 100, Ok("perf-exec")), (10, 100, Ok("server")), (20, 101, Err(100)));
        assert_eq!(called(&[before, forks, execs]), named);
        assert_eq!(called(&[forks, execs, before]), named);
    }

    #[test]
    fn a_name_of_its_own_is_the_one_and_a_number_that_is_used_again_has_a_new_one() {
        let told = [(20, 101, Err(100)), (1, 100, Ok("server")), (30, 101, Ok("worker")), (40, 100, Ok("old"))];
        assert_eq!(called(&told), [(100, "old".to_owned()), (101, "worker".to_owned())]);
        let again = [&told[..], &[(50, 101, Err(100))]].concat();
        assert_eq!(called(&again)[1], (101, "old".to_owned()));
    }

    #[test]
    fn without_times_a_fork_takes_no_name_away() {
        assert_eq!(called(&[(0, 1, Ok("shell")), (0, 2, Ok("work")), (0, 2, Err(1))])[1], (2, "work".to_owned()));
    }

    #[test]
    fn a_thread_keeps_its_name_when_another_process_takes_its_number_over() {
        let mut names = ThreadNames::default();
        names.comm(10, (100, 101), "worker".to_owned());
        names.comm(30, (200, 101), "other".to_owned());
        let told = [((100, 101), "worker".to_owned()), ((200, 101), "other".to_owned())];
        assert_eq!(names.last().into_iter().collect::<Vec<_>>(), told);
    }
}
