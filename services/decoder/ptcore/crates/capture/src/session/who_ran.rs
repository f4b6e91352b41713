//! Streams of a session with who ran in them, from which offset on.

use super::PIDS;
use crate::json::Node;
use crate::{Bytes, CaptureError, Divided, Of, Stream, View, Views};
use std::collections::HashMap;

/// The stream of a core, or of a thread with the kernel's code: who ran from which offset on.
pub fn by_turns(
    segment: &Node,
    turns: &[Node],
    data: Bytes,
    images: &HashMap<u32, usize>,
    nobody: usize,
    views: &mut Views,
) -> Result<Stream, CaptureError> {
    let mut epochs = Vec::new();
    for turn in turns {
        // Once they did not tell how often the thread had come from another core.
        let [offset, pid, tid, epoch, kernel, stay] = match turn.numbers() {
            Ok([offset, pid, tid, epoch, kernel]) => [offset, pid, tid, epoch, kernel, 0],
            Err(_) => turn.numbers()?,
        };
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let image = images.get(&small(pid)).copied().unwrap_or(nobody);
        let (epoch, kernel, stay) = (small(epoch), small(kernel), small(stay));
        let view = View { pid: small(pid), tid: small(tid), image, epoch, kernel, stay };
        epochs.push((usize::try_from(offset).unwrap_or(usize::MAX), views.number(view)));
    }
    if epochs.windows(2).any(|pair| pair[0].0 > pair[1].0) {
        return Err(segment.error("its turns are not in the order of their offsets"));
    }
    let (pid, tid) = (segment.get("pid")?.integer(PIDS)? as u32, segment.get("tid")?.integer(PIDS)? as u32);
    let (name, of) = match segment.find("core")?.and_then(|core| core.integer(PIDS).ok()) {
        Some(core) => (format!("core {core}"), Of::Core(core as u32)),
        None => (format!("thread {tid}"), Of::Thread { pid, tid }),
    };
    Ok(Stream { epochs, image: nobody, ..Stream::new(name, data, of) })
}

/// The stream of a core, divided by the switch records.
pub fn by_switches(mut stream: Stream, divided: Divided, images: &HashMap<u32, usize>, views: &mut Views) -> Stream {
    for (offset, view) in divided.turns {
        let image = images.get(&view.pid).copied().unwrap_or(stream.image);
        stream.epochs.push((offset, views.number(View { image, ..view })));
    }
    stream
}

/// The pairs (offset, epoch) of a segment as pairs (offset, view).
pub fn epochs(segment: &Node, view: View, views: &mut Views) -> Result<Vec<(usize, u32)>, CaptureError> {
    let mut epochs = Vec::new();
    for pair in segment.elements("epochs")? {
        let [offset, epoch] = pair.numbers()?;
        if epochs.last().is_some_and(|&(last, _)| last as u64 >= offset) {
            return Err(pair.error(format!("offset {offset} does not come after the one before")));
        }
        if epochs.is_empty() && offset > 0 {
            epochs.push((0, views.number(view)));
        }
        let view = View { epoch: u32::try_from(epoch).unwrap_or(u32::MAX), ..view };
        epochs.push((usize::try_from(offset).unwrap_or(usize::MAX), views.number(view)));
    }
    if epochs.is_empty() {
        epochs.push((0, views.number(view)));
    }
    Ok(epochs)
}
