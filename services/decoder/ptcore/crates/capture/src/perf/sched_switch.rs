//! The tracepoint sched:sched_switch, by whose samples perf tells who runs where the kernel has no switch records (before
//! Linux 4.3).

use crate::fields::Fields;

/// Where the event's samples have what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedSwitch {
    /// `config` of its attribute.
    pub id: u64,
    /// Offsets of `prev_pid` and `next_pid`, which are tids.
    leaves: usize,
    enters: usize,
}

const NAME: &[u8] = b"name: sched_switch\n";
/// The description of an event's fields is shorter.
const MAX_FORMAT: usize = 1 << 12;

impl SchedSwitch {
    /// Finds the event's format in what perf keeps of tracefs (tools/perf/util/trace-event-info.c): a text, as
    /// Documentation/trace/events.rst describes it.
    pub fn find(tracing_data: &[u8]) -> Option<Self> {
        let from = tracing_data.windows(NAME.len()).position(|bytes| bytes == NAME)? + NAME.len();
        let text = &tracing_data[from..tracing_data.len().min(from + MAX_FORMAT)];
        let text = String::from_utf8_lossy(text);
        let format = text.split("print fmt:").next()?;
        let id = format.lines().find_map(|line| line.strip_prefix("ID: "))?.trim().parse().ok()?;
        Some(SchedSwitch { id, leaves: offset(format, "prev_pid")?, enters: offset(format, "next_pid")? })
    }

    /// The tids of who leaves and who enters; `None` where the data of the sample are shorter.
    pub fn read(&self, raw: &[u8]) -> Option<(u32, u32)> {
        let tid = |at| Fields::new(raw, at).u32().ok();
        Some((tid(self.leaves)?, tid(self.enters)?))
    }
}

/// Of lines as `field:pid_t prev_pid; offset:24; size:4; signed:1;`.
fn offset(format: &str, name: &str) -> Option<usize> {
    let field = format.lines().find_map(|line| {
        let (declared, rest) = line.trim().strip_prefix("field:")?.split_once(';')?;
        (declared.rsplit(' ').next() == Some(name)).then_some(rest)
    })?;
    field.split(';').find_map(|part| part.trim().strip_prefix("offset:"))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn fields_stand_where_the_format_says() {
        let text =
            "\0sched\0name: sched_switch\nID: 314\nformat:\n\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
                    \tfield:pid_t prev_pid;\toffset:8;\tsize:4;\tsigned:1;\n\
                    \tfield:pid_t next_pid;\toffset:4;\tsize:4;\tsigned:1;\n\nprint fmt: \"\"\n";
        let event = SchedSwitch::find(text.as_bytes()).unwrap();
        assert_eq!(event, SchedSwitch { id: 314, leaves: 8, enters: 4 });
        let raw = [[0; 4], 70u32.to_le_bytes(), 80u32.to_le_bytes()].concat();
        assert_eq!(event.read(&raw), Some((80, 70)));
        assert_eq!(event.read(&raw[..11]), None);
    }

    #[test]
    fn a_format_without_these_fields_is_none() {
        let without = "name: sched_switch\nID: 314\n\tfield:pid_t prev_pid;\toffset:8;\nprint fmt: next_pid\n";
        assert_eq!(SchedSwitch::find(without.as_bytes()), None);
        assert_eq!(SchedSwitch::find(b"name: sched_switch\n"), None);
        assert_eq!(SchedSwitch::find(b"name: sched_wakeup\nID: 1\n"), None);
    }

    #[test]
    fn what_perf_itself_keeps_of_the_event_is_understood() {
        let mut perf = Command::new("perf");
        perf.args(["record", "-q", "-a", "-e", "sched:sched_switch", "-o", "-", "true"]);
        let Ok(output) = perf.output() else {
            return eprintln!("skipped: perf is not installed (Debian package linux-perf)");
        };
        if !output.status.success() {
            return eprintln!("skipped: perf may not record: {}", String::from_utf8_lossy(&output.stderr));
        }
        let found = SchedSwitch::find(&output.stdout).expect("its format");
        assert_eq!((found.leaves, found.enters), (24, 56));
    }
}
