//! Whose calls and functions are listed.

/// A thread, and the streams that it was in.
#[derive(Clone, Debug)]
pub struct Thread {
    pub pid: u32,
    pub tid: u32,
    /// What text says of it among other threads.
    pub title: Option<String>,
    /// Names of streams, each with the TSC ticks at which it came there; in order.
    pub streams: Vec<(u64, String)>,
}

impl Thread {
    /// The name of the stream that it was in at a time.
    pub fn stream_at(&self, tsc: u64) -> &str {
        let came = self.streams.partition_point(|&(since, _)| since <= tsc);
        self.streams.get(came.saturating_sub(1)).map_or("", |(_, name)| name)
    }

    /// The names of all of them.
    pub fn all_streams(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        for (_, name) in &self.streams {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        names.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_in_the_stream_that_it_came_to_last() {
        let streams = [(10, "core 0"), (40, "core 1"), (60, "core 0")].map(|(since, name)| (since, name.to_owned()));
        let thread = Thread { pid: 1, tid: 2, title: None, streams: streams.to_vec() };
        assert_eq!(
            [0, 10, 39, 40, 99].map(|tsc| thread.stream_at(tsc)),
            ["core 0", "core 0", "core 0", "core 1", "core 0"]
        );
        assert_eq!(thread.all_streams(), "core 0, core 1");
    }
}
