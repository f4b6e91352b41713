//! Where packets of a stream are missing, and what is told of that.

use crate::perf::auxtrace::Joined;
use crate::perf::running::first_of;

/// Offsets of the stream, in order.
pub struct Losses {
    pub places: Vec<usize>,
    pub warnings: Vec<String>,
}

impl Losses {
    /// `cut`: where the kernel had no room. `handed_out`: up to where it wrote, as it counts, where that is known.
    pub fn of(joined: &Joined, cut: impl Iterator<Item = usize>, handed_out: Option<u64>) -> Self {
        let Joined { name, broken, paused, .. } = joined;
        let mut losses = Losses { places: cut.chain(broken.iter().copied()).collect(), warnings: Vec::new() };
        losses.in_order();
        if !losses.places.is_empty() {
            let text = lost_at(name, &losses.places);
            let behind = match joined.undecodable {
                0 => String::new(),
                bytes => format!("; {bytes} bytes behind them, up to the next PSB, cannot be decoded"),
            };
            losses.warnings.push(text + &behind);
        }
        if !paused.is_empty() {
            losses.warnings.push(format!(
                "{name}: tracing was off while snapshots were taken, at {} places: {}; what ran meanwhile and what stands in front \
                 of the next PSB is not told",
                paused.len(),
                first_of(paused, |at| format!("{at:#x}"))
            ));
            losses.places.extend(paused);
            losses.in_order();
        }
        let behind = handed_out.zip(joined.end).map_or(0, |(handed_out, end)| handed_out.saturating_sub(end));
        if behind > 0 {
            losses.warnings.push(format!(
                "{name}: the kernel wrote {behind} bytes more than the recording has: its end is missing, as where perf was killed; \
                 end perf with SIGINT"
            ));
        }
        losses
    }

    fn in_order(&mut self) {
        self.places.sort_unstable();
        self.places.dedup();
    }
}

pub fn lost_at(name: &str, lost: &[usize]) -> String {
    format!("{name}: packets were lost at {} places: {}", lost.len(), first_of(lost, |at| format!("{at:#x}")))
}

#[cfg(test)]
mod tests {
    use crate::perf::recording::{words, Folder, Pipe};
    use crate::Options;

    #[test]
    fn what_the_kernel_wrote_and_the_recording_has_not_is_told() {
        let folder = Folder::new("handed-out");
        let told = |info: &[u64], end: u64, flags: u64| {
            let mut pipe = Pipe::with(info);
            // perf takes what was handed out while it wrote something else, and begins a new file at times.
            pipe.packets(0, 800, &[0; 16]);
            pipe.packets(0, 816, &[0; 16]);
            pipe.event(11, 0, &words(&[816, end - 816, flags]), (7, 7, 20, 0));
            pipe.open(&folder, Options::default()).warnings
        };
        let (records, snapshots) =
            ([1, 8, 0, 1, 0, 1, 0x400, 0x800, 3, 0, 1], [1, 8, 0, 1, 0, 1, 0x400, 0x800, 3, 1, 1]);
        let none = Vec::<String>::new();
        assert_eq!(told(&records, 832, 0), none);
        let warning =
            "core 0: the kernel wrote 40 bytes more than the recording has: its end is missing, as where perf was \
                       killed; end perf with SIGINT";
        assert_eq!(told(&records, 872, 0), [warning]);
        let has_end = |warnings: Vec<String>| warnings.iter().all(|warning| !warning.contains("the kernel wrote"));
        assert!(has_end(told(&snapshots, 872, 2)));
    }
}
