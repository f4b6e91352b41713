//! perf_event_attr: what stands behind the records.

use crate::fields::{Fields, Short};
use std::collections::HashMap;

/// The parts of perf_event_attr that matter here.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attribute {
    pub kind: u32,
    pub config: u64,
    sample_type: u64,
    flags: u64,
}

const SAMPLE_ID_ALL: u64 = 1 << 18;
const EXCLUDE_KERNEL: u64 = 1 << 5;

const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_ID: u64 = 1 << 6;
const SAMPLE_CPU: u64 = 1 << 7;
const SAMPLE_STREAM_ID: u64 = 1 << 9;
const SAMPLE_IDENTIFIER: u64 = 1 << 16;

impl Attribute {
    /// Reads an attribute whose size stands in it.
    pub fn read(fields: &mut Fields<'_>) -> Result<Attribute, Short> {
        let kind = fields.u32()?;
        let size = fields.u32()?;
        let rest = fields.bytes(u64::from(size).saturating_sub(8))?;
        let mut rest = Fields::new(rest, 0);
        let (config, _period, sample_type) = (rest.u64()?, rest.u64()?, rest.u64()?);
        let (_read_format, flags) = (rest.u64()?, rest.u64()?);
        Ok(Attribute { kind, config, sample_type, flags })
    }

    pub fn excludes_kernel(&self) -> bool {
        self.flags & EXCLUDE_KERNEL != 0
    }
}

/// Who, when and where, as far as the attribute has it told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleId {
    pub pid: Option<u32>,
    pub tid: Option<u32>,
    /// In perf's nanoseconds.
    pub time: Option<u64>,
    pub cpu: Option<u32>,
}

#[derive(Clone, Debug, Default)]
pub struct Attributes {
    pub all: Vec<Attribute>,
    by_id: HashMap<u64, usize>,
}

impl Attributes {
    /// What perf itself asks for with Processor Trace, for loose record files that do not say.
    pub fn usual() -> Self {
        let sample_type = SAMPLE_TID | SAMPLE_TIME | SAMPLE_CPU | SAMPLE_IDENTIFIER;
        let usual = Attribute { kind: 0, config: 0, sample_type, flags: SAMPLE_ID_ALL };
        Attributes { all: vec![usual], by_id: HashMap::new() }
    }

    pub fn add(&mut self, attribute: Attribute, ids: impl Iterator<Item = u64>) {
        let number = self.all.len();
        self.by_id.extend(ids.map(|id| (id, number)));
        self.all.push(attribute);
    }

    /// The sample id at the end of a record's body.
    pub fn sample_id(&self, body: &[u8]) -> SampleId {
        let Some(first) = self.all.first() else { return SampleId::default() };
        let mut attribute = first;
        if first.sample_type & SAMPLE_IDENTIFIER != 0 {
            let id = body.len().checked_sub(8).map(|at| Fields::new(body, at).u64());
            if let Some(Ok(id)) = id {
                attribute = self.by_id.get(&id).map_or(first, |&number| &self.all[number]);
            }
        }
        if attribute.flags & SAMPLE_ID_ALL == 0 {
            return SampleId::default();
        }
        attribute.read_id(body).unwrap_or_default()
    }
}

impl Attribute {
    fn read_id(&self, body: &[u8]) -> Option<SampleId> {
        let has = |bit| self.sample_type & bit != 0;
        let parts = [SAMPLE_TID, SAMPLE_TIME, SAMPLE_ID, SAMPLE_STREAM_ID, SAMPLE_CPU, SAMPLE_IDENTIFIER];
        let size = 8 * parts.into_iter().filter(|&part| has(part)).count();
        let mut fields = Fields::new(body, body.len().checked_sub(size)?);
        let mut id = SampleId::default();
        if has(SAMPLE_TID) {
            (id.pid, id.tid) = (fields.u32().ok(), fields.u32().ok());
        }
        if has(SAMPLE_TIME) {
            id.time = fields.u64().ok();
        }
        for part in [SAMPLE_ID, SAMPLE_STREAM_ID] {
            if has(part) {
                fields.u64().ok()?;
            }
        }
        if has(SAMPLE_CPU) {
            id.cpu = fields.u32().ok();
        }
        Some(id)
    }
}
