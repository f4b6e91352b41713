//! Numbers of processes, threads and cores, as records give them.

/// The kernel's are signed and of 32 bits (`pid_t`, `int cpu`), and none of them is negative.
const END: u32 = 1 << 31;

/// A process's, a thread's or a core's number, if a system may have it.
pub fn possible(number: u64) -> Option<u32> {
    u32::try_from(number).ok().filter(|&number| number < END)
}

/// Records that name what cannot be.
#[derive(Default)]
pub struct Impossible {
    count: usize,
    /// Core, process and thread of the first.
    first: [u32; 3],
}

impl Impossible {
    /// Whether there may be such a core, process and thread; otherwise the record counts as one that is left out.
    pub fn allows(&mut self, core: u32, pid: u32, tid: u32) -> bool {
        let named = [core, pid, tid];
        let may_be = named.iter().all(|&number| number < END);
        if !may_be {
            self.first = if self.count == 0 { named } else { self.first };
            self.count += 1;
        }
        may_be
    }

    pub fn warning(&self) -> Option<String> {
        let [core, pid, tid] = self.first;
        let first = format!("core {core}, process {pid}, thread {tid}");
        let what = "records name what no system has, and are left out";
        (self.count > 0).then(|| format!("{} {what}; the first: {first}", self.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_more_bits_are_possible_where_they_fit() {
        let end = u64::from(END);
        assert_eq!([end - 1, end, 1 << 32 | 7].map(possible), [Some(END - 1), None, None]);
    }

    #[test]
    fn what_no_system_has_is_counted_and_the_first_is_told() {
        let mut impossible = Impossible::default();
        assert!(impossible.allows(END - 1, END - 1, END - 1) && impossible.warning().is_none());
        for odd in [[0, 7, END], [0, END, 7], [END, 7, 7]] {
            assert!(!impossible.allows(odd[0], odd[1], odd[2]));
        }
        let told =
            "3 records name what no system has, and are left out; the first: core 0, process 7, thread 2147483648";
        assert_eq!(impossible.warning().as_deref(), Some(told));
    }
}
