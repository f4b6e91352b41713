//! PERF_RECORD_ID_INDEX: what the events of a recording, which samples name by their ids, were opened for.

use crate::fields::{Fields, Short};
use std::collections::HashMap;

/// Whose packets an event's samples have: what any thread ran on a core, or what one thread ran anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    pub cpu: Option<u32>,
    pub tid: Option<u32>,
}

/// Such records, by id.
#[derive(Default)]
pub struct IdIndex(HashMap<u64, Opened>);

impl IdIndex {
    /// Takes the entries of a record; what newer ones have behind them tells of guests.
    pub fn take(&mut self, body: &[u8]) -> Result<(), Short> {
        let mut fields = Fields::new(body, 0);
        for _ in 0..fields.u64()? {
            let (id, _buffer, cpu, tid) = (fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?);
            // Those that are none are -1.
            let [cpu, tid] = [cpu, tid].map(|number| u32::try_from(number).ok());
            self.0.insert(id, Opened { cpu, tid });
        }
        Ok(())
    }

    pub fn opened(&self, id: u64) -> Option<Opened> {
        self.0.get(&id).copied()
    }
}
