//! What the processor says between the blocks, in words.

use crate::{Row, Value};
use pt_flow::{Execution, NoticeKind};

/// The name of a notice; `None` for one that the line before or behind it tells.
pub fn name(kind: &NoticeKind) -> Option<&'static str> {
    Some(match kind {
        NoticeKind::ExecutionMode(_) => "mode",
        NoticeKind::InterruptFlag(true) => "interrupts on",
        NoticeKind::InterruptFlag(false) => "interrupts off",
        NoticeKind::Paging { .. } => "paging",
        NoticeKind::Vmcs { .. } => "vmcs",
        NoticeKind::Transaction { active: true, .. } => "transaction begins",
        NoticeKind::Transaction { aborted: true, .. } => "transaction aborted",
        NoticeKind::Transaction { .. } => "transaction committed",
        NoticeKind::PtWrite { .. } => "ptwrite",
        NoticeKind::ExecutionStop => "execution stops",
        NoticeKind::Mwait { .. } => "mwait",
        NoticeKind::PowerEntry { .. } => "power entry",
        NoticeKind::PowerExit { .. } => "power exit",
        NoticeKind::CoreBusRatio(_) => "core bus ratio",
        NoticeKind::Maintenance(_) => "maintenance",
        NoticeKind::TraceStop => "trace stops",
        NoticeKind::Interrupt { .. } => "interrupt event",
        NoticeKind::SoftwareInterrupt { .. } => "software interrupt",
        NoticeKind::Iret => "iret",
        NoticeKind::Smi => "smi",
        NoticeKind::Rsm => "rsm",
        NoticeKind::Sipi { .. } => "sipi",
        NoticeKind::Init => "init",
        NoticeKind::VmEntry => "vm entry",
        NoticeKind::VmExit { .. } => "vm exit",
        NoticeKind::Shutdown => "shutdown",
        NoticeKind::UserInterrupt { .. } => "user interrupt",
        NoticeKind::UserIret => "user iret",
        NoticeKind::SystemCall => "system call",
        NoticeKind::OtherEvent { .. } => "other event",
        NoticeKind::Trigger { .. } => "trigger",
        _ => return None,
    })
}

/// Its values.
pub fn put(row: &mut Row<'_>, kind: &NoticeKind) {
    let hex = |value: Option<u64>| value.map_or(Value::Unknown, Value::Hex);
    match *kind {
        NoticeKind::ExecutionMode(mode) => {
            row.put("bits", "bits", Value::Number(bits(mode).into()));
        }
        NoticeKind::Paging { cr3, non_root } => {
            row.put("cr3", "cr3", Value::Hex(cr3)).put("non_root", "non-root", Value::Flag(non_root));
        }
        NoticeKind::Vmcs { base } => {
            row.put("base", "base", Value::Hex(base));
        }
        NoticeKind::PtWrite { payload, size } => {
            row.put("payload", "", Value::Hex(payload)).put("payload_bytes", "bytes", Value::Number(size.into()));
        }
        NoticeKind::Mwait { hints, extensions } => {
            row.put("hints", "hints", Value::Hex(hints.into()));
            row.put("extensions", "extensions", Value::Hex(extensions.into()));
        }
        NoticeKind::PowerEntry { state, sub_state, hardware } => {
            row.put("state", "state", Value::Number(state.into()));
            row.put("sub_state", "sub-state", Value::Number(sub_state.into()));
            row.put("hardware", "hardware", Value::Flag(hardware));
        }
        NoticeKind::PowerExit { last, deepest, wake } => {
            row.put("last", "last", Value::Number(last.into())).put(
                "deepest",
                "deepest",
                Value::Number(deepest.into()),
            );
            row.put("wake", "wake", Value::Hex(wake.into()));
        }
        NoticeKind::CoreBusRatio(ratio) => {
            row.put("ratio", "", Value::Number(ratio.into()));
        }
        NoticeKind::Maintenance(payload) => {
            row.put("payload", "", Value::Hex(payload));
        }
        NoticeKind::Interrupt { vector, address } => {
            row.put("vector", "vector", Value::Number(vector.into())).put(
                "fault_address",
                "page fault at",
                hex(address),
            );
        }
        NoticeKind::SoftwareInterrupt { vector }
        | NoticeKind::Sipi { vector }
        | NoticeKind::UserInterrupt { vector } => {
            row.put("vector", "vector", Value::Number(vector.into()));
        }
        NoticeKind::VmExit { vector, reason, qualification } => {
            row.put("vector", "vector", vector.map_or(Value::Unknown, |vector| Value::Number(vector.into())));
            row.put("reason", "reason", hex(reason)).put("qualification", "qualification", hex(qualification));
        }
        NoticeKind::OtherEvent { kind, vector } => {
            row.put("kind", "kind", Value::Number(kind.into())).put("vector", "vector", Value::Number(vector.into()));
        }
        NoticeKind::Trigger { number, multiple } => {
            row.put("number", "", Value::Number(number.into())).put("multiple", "multiple", Value::Flag(multiple));
        }
        _ => {}
    }
}

pub fn bits(mode: Execution) -> u32 {
    match mode {
        Execution::Bits16 => 16,
        Execution::Bits32 => 32,
        Execution::Bits64 => 64,
    }
}
