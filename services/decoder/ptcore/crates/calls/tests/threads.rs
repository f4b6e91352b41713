//! Threads of one stream, each with a sink of its own.

use crate::paths::Blocks;
use crate::support::reference_data;
use pt_calls::Calls;
use pt_capture::{open, Memory, Options, Threads, View, Views};
use pt_flow::{Block, CondBranches, DisableKind, Flow, Loss, Path, Sink, Statistics};
use pt_image::Image;

/// What paths and branches say that they hold, and how much was told at once.
#[derive(Default)]
struct Sums {
    told: Statistics,
    blocks: u64,
    at_once: u64,
    generation: u64,
}

impl Sink for Sums {
    fn block(&mut self, block: &Block<'_>, _: u64) {
        self.told.instructions += u64::from(block.instructions);
        self.blocks += 1;
    }
    fn cond_branches(&mut self, branches: &mut CondBranches<'_>, _: u64) {
        let left = branches.left();
        let told = branches.by_ref().map(|branch| u64::from(branch.instructions)).sum::<u64>();
        assert_eq!(told, branches.instructions());
        self.told.instructions += told;
        self.at_once += u64::from(left - branches.left());
    }
    fn path(&mut self, path: &Path<'_>, _: u64) {
        let of_blocks = path.blocks().map(|block| u64::from(block.instructions)).sum::<u64>();
        assert_eq!(path.statistics().instructions, of_blocks);
        assert_ne!(self.generation, 0, "of which paths it is one");
        self.told += path.statistics();
        self.at_once += 1;
    }
    fn paths(&mut self, generation: u64) {
        self.generation = generation;
    }
    fn enabled(&mut self, _: u64, _: bool, _: u64) {}
    fn disabled(&mut self, _: DisableKind, _: u64, _: Option<u64>, _: u64) {}
    fn interrupt(&mut self, _: u64, _: u64, _: u64) {}
    fn loss(&mut self, _: &Loss) {}
    fn overflow(&mut self, _: usize, _: Option<u64>, _: u64) {}
}

/// Each of so many threads of two processes has so many bytes of the stream, in turns; the first image is there twice.
fn turns(size: usize, each: usize, threads: u32) -> (Views, Vec<(usize, u32)>) {
    let mut views = Views::default();
    let turn = |(number, offset): (u32, usize)| {
        let (pid, tid) = (1 + number % 2, 1 + number % threads);
        let image = (pid - 1) as usize;
        (offset, views.number(View { pid, tid, image, epoch: 0, kernel: 0, stay: 0 }))
    };
    let turns = (0..).zip((0..size).step_by(each)).map(turn).collect();
    (views, turns)
}

#[test]
fn every_thread_is_told_what_it_would_be_told_block_by_block() {
    let Some(data) = reference_data() else { return };
    // Where they are three, both processes have threads of these numbers.
    let of_four = [(1, 1), (1, 3), (2, 2), (2, 4)].to_vec();
    let of_three = [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)].to_vec();
    let of_last = [("last", 4096, 4, of_four.clone()), ("last", 4096, 3, of_three)];
    for (name, each, count, expected) in [&of_last[..], &[("ovf-01-ben", 100, 4, of_four)]].concat() {
        let path = data.join(format!("pt/griffin/{name}.griffin.gz"));
        let (capture, again) = (open(&path, &Options::default()).unwrap(), open(&path, &Options::default()).unwrap());
        let stream = &capture.streams[0];
        let (views, turns) = turns(stream.data.len(), each, count);
        let images: [&Image; 2] = [&capture.images[stream.image], &again.images[stream.image]];
        let memory = Memory::of(&images, &views, None);
        // Twice, so that the second time all paths are known.
        let (mut flow, mut other) = (Flow::new(memory), Flow::new(memory));
        for _ in 0..2 {
            let mut threads = Threads::new(&views, |_| Calls::new(memory));
            let mut by_blocks = Threads::new(&views, |_| Blocks(Calls::new(memory)));
            let statistics = flow.decode(&stream.data, &capture.config, &turns, &mut threads);
            assert_eq!(other.decode(&stream.data, &capture.config, &turns, &mut by_blocks), statistics);
            let (threads, by_blocks) = (threads.finish(), by_blocks.finish());
            assert_eq!(threads.keys().copied().collect::<Vec<_>>(), expected);
            for ((thread, mut one), mut other) in threads.into_iter().zip(by_blocks.into_values()) {
                let (one, other) = (one.finish(), other.0.finish());
                assert!(one.records.len() > 10 && one.records == other.records, "{name}: thread {thread:?}");
                assert!(one.edges == other.edges && one.losses == other.losses, "{name}: thread {thread:?}");
            }
            let mut sums = Threads::new(&views, |_| Sums::default());
            flow.decode(&stream.data, &capture.config, &turns, &mut sums);
            let sums = sums.finish();
            let sum = |one: fn(&Sums) -> u64| sums.values().map(one).sum::<u64>();
            assert_eq!(sum(|sums| sums.told.instructions), statistics.instructions, "{name}");
            assert!(sum(|sums| sums.at_once) > sum(|sums| sums.blocks), "{name}");
        }
    }
}
