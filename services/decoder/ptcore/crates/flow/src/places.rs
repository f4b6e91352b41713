//! Where streams are divided.

use crate::shared_work::share;
use crate::Config;
use memchr::memmem;
use pt_packet::{find_psb, psbs, Packet, Reader, OVF, PSB};
use std::ops::Range;

/// Further than that PSBs are not looked for in front of what may be an OVF.
const REACH: usize = 1 << 16;
/// A thread is begun to look for OVFs in no fewer bytes.
const WORTH_A_THREAD: usize = 1 << 20;

/// How many threads decode parts of about so many bytes.
#[derive(Clone, Copy, Debug)]
pub struct Workers {
    pub threads: usize,
    pub part_bytes: usize,
}

/// Where parts of a stream begin, and where the processor lost packets.
pub struct Places {
    pub from: Vec<usize>,
    overflows: Vec<usize>,
}

impl Places {
    /// Parts that can be put together (see [`places_to_join`]), and that are short where the processor lost packets.
    pub fn around_overflows(data: &[u8], config: &Config, workers: Workers) -> Places {
        let overflows = overflows(data, config, workers.threads.min(data.len() / WORTH_A_THREAD));
        let from = places(data, workers, &overflows, |psb| says_all(data, config, psb));
        Places { from, overflows }
    }

    /// Whether the processor lost packets in the part.
    pub fn has_overflow(&self, part: usize) -> bool {
        let next = self.overflows.partition_point(|&at| at < self.from[part]);
        let end = self.from.get(part + 1).copied().unwrap_or(usize::MAX);
        self.overflows.get(next).is_some_and(|&at| at < end)
    }
}

/// Where to divide a stream so that parts can be put together which were decoded without a look at those before: PSBs that say
/// where execution is and in which mode.
pub fn places_to_join(data: &[u8], config: &Config, workers: Workers) -> Vec<usize> {
    places(data, workers, &[], |psb| says_all(data, config, psb))
}

/// 0 and PSBs that are `fit`, a part from each other, and in front of and behind what is to be kept apart. Towards the end parts
/// become shorter, down to an eighth: no thread has to wait long for the last one. Between what is kept apart a quarter of that
/// will do: where there is much of it nothing else would be left to divide.
pub fn places(data: &[u8], workers: Workers, apart: &[usize], fit: impl Fn(usize) -> bool) -> Vec<usize> {
    let most = workers.part_bytes.max(1);
    let least = most.div_ceil(8);
    let size = |at: usize| (data.len().saturating_sub(at) / (2 * workers.threads.max(1))).clamp(least, most);
    let psbs = |from: usize| psbs(data, from).filter(|&psb| fit(psb));
    let mut places = vec![0];
    let mut last = 0;
    loop {
        let next = psbs(last + size(last)).next();
        let ahead = apart.get(apart.partition_point(|&at| at < last)).copied();
        let behind = match ahead.filter(|&at| next.is_none_or(|next| at < next)) {
            Some(at) => {
                places.extend(psbs(last + least.div_ceil(4)).take_while(|&psb| psb < at).last());
                psbs(at).next()
            }
            None => next,
        };
        let Some(behind) = behind else { return places };
        places.push(behind);
        last = behind;
    }
}

/// The first OVF packet behind each PSB that has one. All else waits for them, so several threads look for them.
fn overflows(data: &[u8], config: &Config, threads: usize) -> Vec<usize> {
    let begins = (1..threads).filter_map(|part| find_psb(data, data.len() / threads * part));
    let mut begins: Vec<_> = [0].into_iter().chain(begins).collect();
    begins.dedup();
    let parts = begins.iter().enumerate();
    let parts = parts.map(|(part, &begin)| begin..begins.get(part + 1).copied().unwrap_or(data.len()));
    share(parts, |part| overflows_of(data, config, part)).concat()
}

/// Those of a part that begins with a PSB.
fn overflows_of(data: &[u8], config: &Config, part: Range<usize>) -> Vec<usize> {
    let mut overflows = Vec::new();
    let mut reader = Reader::with_errata(data, config.errata);
    reader.seek(part.start);
    let mut reads = false;
    for at in memmem::find_iter(&data[part.clone()], &OVF).map(|at| part.start + at) {
        // What was read already has no PSB that matters.
        let from = reader.offset().max(at.saturating_sub(REACH)).min(at);
        if let Some(psb) = memmem::rfind(&data[from..at], &PSB) {
            reader.seek(from + psb);
            reads = true;
        }
        while reads && reader.offset() < at {
            reads = matches!(reader.read(), Ok(Some(_)));
        }
        if reads && reader.offset() == at {
            overflows.push(at);
            reads = false;
        }
        if !reads {
            reader.seek(at);
        }
    }
    overflows
}

/// Whether the PSB+ has an address and a mode.
fn says_all(data: &[u8], config: &Config, psb: usize) -> bool {
    let mut reader = Reader::with_errata(data, config.errata);
    reader.seek(psb + PSB.len());
    let (mut address, mut mode) = (false, false);
    while let Ok(Some(packet)) = reader.read() {
        match packet {
            Packet::Fup(_) => address = true,
            Packet::ModeExec { .. } => mode = true,
            Packet::Psbend => return address && mode,
            Packet::Psb | Packet::Ovf => return false,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use pt_packet::writer::write;
    use pt_packet::{Compression, Execution, Ip};

    /// PSBs with `between` behind each of them; where they are.
    fn stream(between: &[&[Packet]]) -> (Vec<u8>, Vec<usize>) {
        let ip = Packet::Fup(Ip { compression: Compression::Full, payload: 0x1000 });
        let mode = Packet::ModeExec { mode: Execution::Bits64, interrupt_flag: true };
        let (mut data, mut psbs) = (Vec::new(), Vec::new());
        for packets in between {
            psbs.push(data.len());
            [Packet::Psb, mode, ip, Packet::Psbend].iter().chain(*packets).for_each(|&packet| write(&mut data, packet));
        }
        (data, psbs)
    }

    #[test]
    fn parts_are_short_around_overflows_and_long_elsewhere() {
        let mut between = [&[Packet::Cyc(1)][..]; 100];
        between[50] = &[Packet::Ovf, Packet::Cyc(1), Packet::Ovf];
        between[53] = &[Packet::Ovf];
        let (data, psbs) = stream(&between);
        let workers = Workers { threads: 1, part_bytes: data.len() / 4 };
        let places = Places::around_overflows(&data, &Config::default(), workers);
        let from = &places.from;
        assert_eq!(places.overflows.len(), 2);
        let part = from.iter().position(|&at| at == psbs[50]).expect("a part that begins in front of the first one");
        assert_eq!(from[part..part + 4], [psbs[50], psbs[51], psbs[53], psbs[54]]);
        let with: Vec<_> = (0..from.len()).filter(|&part| places.has_overflow(part)).collect();
        assert_eq!(with, [part, part + 2]);
        assert!(from.len() < 20, "{} parts", from.len());
    }

    #[test]
    fn what_looks_like_an_overflow_inside_of_a_packet_is_none() {
        let ovf = u64::from(u16::from_le_bytes(OVF)) << 8;
        let target = Packet::Tip(Ip { compression: Compression::Full, payload: ovf });
        let (data, _) = stream(&[&[target], &[target, Packet::Ovf], &[target]]);
        let overflows = overflows(&data, &Config::default(), 1);
        assert_eq!(memmem::find_iter(&data, &OVF).count(), 4);
        assert_eq!(overflows.len(), 1);
        assert_eq!(memmem::find_iter(&data, &OVF).nth(2), Some(overflows[0]));
    }

    #[test]
    fn several_threads_find_what_one_finds() {
        let mut between = [&[Packet::Cyc(1); 20][..]; 100];
        [0, 32, 33, 34, 49, 50, 66, 99]
            .iter()
            .for_each(|&at| between[at] = &[Packet::Cyc(1), Packet::Ovf, Packet::Cyc(1)]);
        let (data, _) = stream(&between);
        let by_one = overflows(&data, &Config::default(), 1);
        assert_eq!(by_one.len(), 8);
        for threads in [2, 3, 7, data.len()] {
            assert_eq!(overflows(&data, &Config::default(), threads), by_one, "{threads} threads");
        }
    }

    #[test]
    fn nothing_but_overflows_is_looked_at_once() {
        let (mut data, _) = stream(&[&[Packet::Ovf]]);
        data.extend(OVF.repeat(1 << 20));
        assert_eq!(overflows(&data, &Config::default(), 1).len(), 1);
    }
}
