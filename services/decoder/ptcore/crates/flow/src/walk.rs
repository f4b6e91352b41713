//! The walk: events and code to the blocks that ran.

mod ahead;
mod blocks;
mod bypass;
mod deferred;
mod gap;
mod hare;
mod hidden;
mod hot;
mod missing;
mod notices;
mod program_calls;
mod reading_on;
mod resume;
mod slots;
mod state;
mod status;
mod stream;
mod told;
mod tracing;
mod transfer;
mod turns;
mod unreadable;

use crate::code::CodeCache;
use crate::code_block::SCRATCH;
use crate::config::Config;
use crate::epochs_ahead::EpochsAhead;
use crate::event::{Event, Fault};
use crate::events::Events;
use crate::notice::Placed;
use crate::part::{Clock, Ended, Part, Stopped};
use crate::returns::ReturnStack;
use crate::statistics::Statistics;
use crate::view::View;
use crate::{CodeMemory, Loss, Notice, Reason, Sink, Time};
use hare::Hare;
use program_calls::ProgramCalls;
use pt_packet::Execution;
pub use turns::{decode_in_turns, InTurn, InTurns, Turns};

pub struct Walk<'w, 'd, M, S> {
    memory: &'w M,
    code: &'w mut CodeCache,
    events: Events<'d>,
    sink: &'w mut S,
    returns: ReturnStack,
    program_calls: ProgramCalls,
    epochs: EpochsAhead<'w>,
    epoch: u32,
    config: Config,
    /// As far as known since the last PSB or overflow.
    mode: Option<Execution>,
    interrupt_flag: Option<bool>,
    view: View,
    /// Notices to be told with the next branch that takes a packet, or the next enable.
    held: Vec<Notice>,
    /// Notices of where the flow was lost, with their times.
    around: Vec<(Placed, u64)>,
    /// The last packet used up said where execution is, and nothing was read since.
    fresh: bool,
    /// Instructions that had run when one said so.
    mark: u64,
    /// How far execution is, where a PSB said that it is further on, and how many instructions had been told then.
    proven: Option<(u64, u64)>,
    enabled: bool,
    /// The block about to run, while enabled.
    at: u32,
    /// Where it begins, or the address that could not be read.
    ip: u64,
    /// Where tracing was last disabled.
    stopped_at: Option<u64>,
    pending: Option<Event>,
    hare: Hare,
    /// The last fault is that code does not fit the packets, which are whole.
    in_code: bool,
    /// The last PSB from which on the flow was followed.
    followed: usize,
    /// Since the last PSB code that is not known was gone around.
    bypassed: bool,
    /// Why the flow cannot go on, when the walk does after the pause.
    postponed: Option<Fault>,
    /// The last PSB of which an MNT was told that the flow came by.
    maintained: Option<usize>,
    /// The pending note is where the flow was resumed.
    resumed_at_note: bool,
    /// The flow before fits the PSB from which on this one goes, and nothing was read since.
    joins: Option<usize>,
    stops: &'w [usize],
    /// Where packets are missing further on.
    missing: &'w [usize],
    stopped: Option<Stopped>,
    /// It is one of several that are walked in turns, each up to where an epoch begins; there it stands.
    in_turns: bool,
    /// It only tries what may follow, up to where another epoch may begin.
    is_trial: bool,
    pauses: bool,
    /// Where the next PSB is looked for, and what is lost up to there.
    from: usize,
    lost: Loss,
    /// The time where the flow joined that of the part before.
    joined: Option<Box<Time>>,
    statistics: Statistics,
}

/// What a pending event means for the block about to run.
enum Ahead {
    Run,
    Moved,
    Stopped,
}

impl<'w, 'd, M: CodeMemory, S: Sink> Walk<'w, 'd, M, S> {
    pub fn new(
        memory: &'w M,
        code: &'w mut CodeCache,
        data: &'d [u8],
        config: &Config,
        epochs: EpochsAhead<'w>,
        part: &Part<'w>,
        sink: &'w mut S,
    ) -> Self {
        let lost = Loss {
            offset: part.from,
            size: 0,
            reason: Reason::BeforeFirstPsb,
            address: 0,
            epoch: epochs.first().map_or(0, |(_, epoch)| epoch),
            tsc0: 0,
            tsc1: 0,
        };
        let behind = part.missing.partition_point(|&at| part.from != 0 && at <= part.from);
        let missing = &part.missing[behind..];
        let mut walk = Walk {
            memory,
            code,
            events: Events::new(data, *config),
            sink,
            returns: ReturnStack::new(),
            program_calls: ProgramCalls::default(),
            epochs,
            epoch: 0,
            config: *config,
            mode: None,
            interrupt_flag: None,
            view: View::new(0, Execution::Bits64),
            held: Vec::new(),
            around: Vec::new(),
            fresh: false,
            mark: 0,
            proven: None,
            enabled: false,
            at: SCRATCH,
            ip: 0,
            stopped_at: None,
            pending: None,
            hare: Hare::default(),
            in_code: false,
            followed: 0,
            bypassed: false,
            postponed: None,
            maintained: part.joins.then_some(part.from),
            resumed_at_note: false,
            joins: part.joins.then_some(part.from),
            stops: part.stops,
            missing,
            stopped: None,
            in_turns: false,
            is_trial: false,
            pauses: false,
            from: part.from,
            lost,
            joined: None,
            statistics: Statistics::default(),
        };
        walk.end_where_missing();
        walk
    }

    /// Decodes the part.
    pub fn part(&mut self, clock: &Clock) -> Ended {
        match clock {
            Clock::New => {}
            Clock::From(psb) => self.events.time.follow(&self.config, self.events.whole, *psb, self.from),
            Clock::Known(time) => self.events.time.clone_from(time),
        }
        self.sink.paths(self.code.paths.generation);
        self.stream();
        self.ended()
    }

    fn ended(&mut self) -> Ended {
        let events = &self.events;
        let (packets, psb, ovf) = match &self.stopped {
            Some(_) => events.before_psb,
            None => (events.packets, events.psb, events.ovf),
        };
        let statistics = Statistics { packets, tnt_bits: events.tnt_bits, psb, ovf, ..self.statistics };
        let (stopped, joined) = (self.stopped.take(), self.joined.take());
        Ended { statistics, stopped, joined, time: Box::new(self.events.time.clone()) }
    }
}

impl<M: CodeMemory, S: Sink> Walk<'_, '_, M, S> {
    /// From the status at a PSB to the end of the stream.
    fn flow(&mut self, status: Event) -> Result<(), Fault> {
        self.pending = Some(status);
        self.run()
    }

    fn run(&mut self) -> Result<(), Fault> {
        while !self.pauses {
            if let Some(fault) = self.postponed.take() {
                return Err(fault);
            }
            let more = if self.enabled { self.walk() } else { self.idle() };
            match more {
                Ok(true) if self.stopped.is_none() => {}
                Ok(_) => break,
                Err(fault) => {
                    self.tell_proven();
                    return self.end(fault);
                }
            }
        }
        Ok(())
    }

    /// The flow cannot go on, which waits for its turn in an epoch that has just begun.
    fn end(&mut self, fault: Fault) -> Result<(), Fault> {
        if !self.pauses || !self.in_turns {
            return Err(fault);
        }
        self.postponed = Some(fault);
        Ok(())
    }

    #[cold]
    fn fault(&mut self, reason: Reason) -> Fault {
        self.in_code = true;
        Fault { offset: self.events.offset, reason }
    }

    #[cold]
    fn unexpected(&mut self, event: &Event) -> Fault {
        if let Event::Enable { .. } = event {
            self.events.tell_mode_by_itself();
        }
        self.fault(Reason::UnexpectedPacket(event.packet_name()))
    }
}
