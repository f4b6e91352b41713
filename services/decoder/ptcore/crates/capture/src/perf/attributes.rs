//! perf_event_attr: what stands behind the records.

use super::sample_type as field;
use super::sched_switch::SchedSwitch;
use crate::fields::{Fields, Short};
use std::collections::HashMap;

/// The parts of perf_event_attr that matter here.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attribute {
    pub kind: u32,
    pub config: u64,
    pub sample_type: u64,
    pub read_format: u64,
    flags: u64,
    pub branch_sample_type: u64,
    pub sample_regs_user: u64,
    pub sample_regs_intr: u64,
    /// It pauses or resumes tracing, or begins paused (`aux_action`).
    pub pauses: bool,
}

const SAMPLE_ID_ALL: u64 = 1 << 18;
const EXCLUDE_KERNEL: u64 = 1 << 5;
/// aux_start_paused, aux_pause and aux_resume, behind the 32 bits of aux_sample_size.
const AUX_ACTIONS: u64 = 7 << 32;

impl Attribute {
    /// Reads an attribute whose size stands in it.
    pub fn read(fields: &mut Fields<'_>) -> Result<Attribute, Short> {
        let kind = fields.u32()?;
        let size = fields.u32()?;
        let rest = fields.bytes(u64::from(size).saturating_sub(8))?;
        let mut rest = Fields::new(rest, 0);
        let (config, _period, sample_type) = (rest.u64()?, rest.u64()?, rest.u64()?);
        let (read_format, flags) = (rest.u64()?, rest.u64()?);
        // Older ones end earlier.
        let mut more = || rest.u64().unwrap_or(0);
        let (_wakeup, _config1, _config2) = (more(), more(), more());
        let (branch_sample_type, sample_regs_user) = (more(), more());
        let (_stack_and_clock, sample_regs_intr) = (more(), more());
        let (_watermark_and_stack, sample_size_and_action) = (more(), more());
        Ok(Attribute {
            kind,
            config,
            sample_type,
            read_format,
            flags,
            branch_sample_type,
            sample_regs_user,
            sample_regs_intr,
            pauses: sample_size_and_action & AUX_ACTIONS != 0,
        })
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
    /// Where samples tell who runs.
    pub sched_switch: Option<SchedSwitch>,
    by_id: HashMap<u64, usize>,
}

impl Attributes {
    /// What perf itself asks for with Processor Trace, for loose record files that do not say.
    pub fn usual() -> Self {
        Attributes::loose(field::TID | field::TIME | field::CPU | field::IDENTIFIER)
    }

    /// That of all records.
    pub fn loose(sample_type: u64) -> Self {
        let attribute = Attribute { sample_type, flags: SAMPLE_ID_ALL, ..Attribute::default() };
        Attributes { all: vec![attribute], ..Attributes::default() }
    }

    pub fn add(&mut self, attribute: Attribute, ids: impl Iterator<Item = u64>) {
        let number = self.all.len();
        self.by_id.extend(ids.map(|id| (id, number)));
        self.all.push(attribute);
    }

    /// For how many cores and threads the events of a kind were opened; 0 where that is not told.
    pub fn opened(&self, kind: u64) -> usize {
        self.by_id.values().filter(|&&number| u64::from(self.all[number].kind) == kind).count()
    }

    /// Whether there may be packets in samples.
    pub fn sample_packets(&self) -> bool {
        self.all.iter().any(|attribute| attribute.sample_type & field::AUX != 0)
    }

    /// What stands behind a sample.
    pub fn of_sample(&self, body: &[u8]) -> Option<&Attribute> {
        let id = Fields::new(body, 0).u64().ok();
        let told = id.and_then(|id| self.by_id.get(&id)).map(|&number| &self.all[number]);
        told.filter(|attribute| attribute.sample_type & field::IDENTIFIER != 0).or(self.all.first())
    }

    /// The sample id at the end of a record's body.
    pub fn sample_id(&self, body: &[u8]) -> SampleId {
        let Some(first) = self.all.first() else { return SampleId::default() };
        let mut attribute = first;
        if first.sample_type & field::IDENTIFIER != 0 {
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
        let parts = [field::TID, field::TIME, field::ID, field::STREAM_ID, field::CPU, field::IDENTIFIER];
        let size = 8 * parts.into_iter().filter(|&part| has(part)).count();
        let mut fields = Fields::new(body, body.len().checked_sub(size)?);
        let mut id = SampleId::default();
        if has(field::TID) {
            (id.pid, id.tid) = (fields.u32().ok(), fields.u32().ok());
        }
        if has(field::TIME) {
            id.time = fields.u64().ok();
        }
        for part in [field::ID, field::STREAM_ID] {
            if has(part) {
                fields.u64().ok()?;
            }
        }
        if has(field::CPU) {
            id.cpu = fields.u32().ok();
        }
        Some(id)
    }
}
