//! Calls are written by several threads while another one finds them.

use crate::calls::Ended;
use crate::{stop, CallWriter, Code, Lines, Thread};
use std::cell::RefCell;
use std::panic::resume_unwind;
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::sync::{Arc, Mutex};
use std::thread;

/// Batches for each thread that may be on their way.
const AHEAD: usize = 2;

/// Where the calls of some threads go, to be written in this order.
pub struct Page {
    batches: SyncSender<(Ended, SyncSender<Vec<String>>)>,
    written: SyncSender<Receiver<Vec<String>>>,
    /// The thread whose calls came last.
    pub(crate) thread: RefCell<Option<Arc<Thread>>>,
}

impl Page {
    /// Waits where many are on their way, and ends by [`stop`] when nobody wants more.
    pub(crate) fn write(&self, ended: Ended) {
        let (text, written) = sync_channel(1);
        if self.written.send(written).is_err() || self.batches.send((ended, text)).is_err() {
            stop();
        }
    }
}

/// Writes what `follow` puts onto the page, by so many threads and one for `follow`.
pub fn write_calls<C: Code>(
    threads: usize,
    lines: &mut Lines<'_>,
    writer: impl Fn() -> CallWriter<C> + Sync,
    follow: impl FnOnce(&Page) + Send,
) {
    let threads = threads.max(1);
    let form = lines.form;
    let (batches, waiting) = sync_channel::<(Ended, SyncSender<Vec<String>>)>(AHEAD * threads);
    let (written, texts) = sync_channel::<Receiver<Vec<String>>>(AHEAD * threads);
    let waiting = Arc::new(Mutex::new(waiting));
    let write = |waiting: Arc<Mutex<Receiver<_>>>| {
        let mut writer = writer();
        loop {
            let next = waiting.lock().ok().and_then(|waiting| waiting.recv().ok());
            let Some((ended, text)): Option<(Ended, SyncSender<_>)> = next else { return };
            let mut pieces = Vec::new();
            let mut lines = Lines::new(form, |piece| {
                pieces.push(piece);
                true
            });
            writer.write(&ended, &mut lines);
            lines.flush();
            drop(lines);
            // Where nobody waits any more, none come either.
            let _ = text.send(pieces);
        }
    };
    thread::scope(|scope| {
        // Here, so that the others end when this one unwinds.
        let texts = texts;
        let mut others: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn({
                    let waiting = Arc::clone(&waiting);
                    let write = &write;
                    move || write(waiting)
                })
            })
            .collect();
        drop(waiting);
        others.push(scope.spawn(move || follow(&Page { batches, written, thread: RefCell::default() })));
        for text in texts {
            // No text: who wrote it has panicked.
            let Ok(pieces) = text.recv() else { break };
            pieces.into_iter().for_each(|piece| lines.pass_on(piece));
        }
        let ended: Vec<_> = others.into_iter().map(|other| other.join()).collect();
        if let Some(Err(panicked)) = ended.into_iter().find(Result::is_err) {
            resume_unwind(panicked);
        }
    });
}
