"""What `permille trace` says: the cost before the start, how far it is, the next command."""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.json_format import MessageToDict
from permille.api.controller.v1 import controller_pb2
from permille.api.coverage.v1 import coverage_pb2
from permille.api.operation.v1 import operation_pb2
from permille.cli.rendering.units import duration, size

STAGES = {
    "PLANNING": "planning",
    "RECORDING": "recording",
    "STORING": "storing",
    "DECODING": "decoding",
}


def estimate_line(plan: coverage_pb2.Plan) -> str:
    """What the recording is expected to cost."""
    nodes = ", ".join(
        f"{node.node.removeprefix('nodes/')} (pid {', '.join(map(str, node.pids))})" for node in plan.nodes
    )
    periods = {node.period_ms for node in plan.nodes}
    period = duration(max(periods) * 1e6) if periods else "0 ms"
    source = (
        f"measured in {plan.measured_sessions} earlier sessions"
        if plan.measured_sessions
        else "a first guess: no earlier session of this program"
    )
    return (
        f"{nodes}: {period}, about {size(plan.expected_bytes)} of trace, "
        f"about {duration(plan.expected_decode_ms * 1e6)} to decode ({source})"
    )


def unreachable_line(plan: coverage_pb2.Plan) -> str:
    """Which nodes are left out; empty when none is."""
    if not plan.unreachable_nodes:
        return ""
    return "left out, they do not answer: " + ", ".join(plan.unreachable_nodes)


def not_planned_lines(plan: coverage_pb2.Plan) -> list[str]:
    """Of how many processes that are meant which are in no session of the plan, by reason."""
    left_out = sum(one.instances for one in plan.not_planned)
    whole = left_out + sum(len(node.pids) for node in (*plan.nodes, *plan.later))
    return [f"not planned, {one.instances:,} of {whole:,} processes: {one.reason}" for one in plan.not_planned]


def memory_lines(node: str, memory: controller_pb2.PlanSessionResponse) -> list[str]:
    """Which buffer of one node is how large, and why."""
    unit = "core" if memory.unit == controller_pb2.BUFFER_UNIT_CORE else "thread"
    lines = [f"{node.removeprefix('nodes/')}: memory by {unit}, {size(memory.budget_bytes)} at most"]
    lines += [
        f"  {unit} {buffer.unit}: {size(buffer.size_bytes) if buffer.size_bytes else 'none'}, {buffer.reason}"
        for buffer in memory.buffers
    ]
    if memory.reserve:
        lines.append(f"  {memory.reserve} in reserve for {unit}s to come: {size(memory.reserve_buffer_bytes)} each")
    return lines


def memory_json(memory: controller_pb2.PlanSessionResponse) -> dict[str, object]:
    """The same as JSON: 64-bit numbers as numbers."""
    return {
        "unit": controller_pb2.BufferUnit.Name(memory.unit).removeprefix("BUFFER_UNIT_").lower(),
        "budget_bytes": memory.budget_bytes,
        "expected_bytes": memory.expected_bytes,
        "reserve": memory.reserve,
        "reserve_buffer_bytes": memory.reserve_buffer_bytes,
        "buffers": [
            {"unit": buffer.unit, "size_bytes": buffer.size_bytes, "reason": buffer.reason} for buffer in memory.buffers
        ],
    }


def stage_text(progress: operation_pb2.Progress) -> str:
    """The stage with how far it is: `storing 12.3 MiB`."""
    word = STAGES.get(progress.stage, progress.stage.lower())
    done, total = progress.completed, progress.total
    if not done and not total:
        return word
    match progress.unit:
        case "bytes":
            text, whole = size(done), size(total)
        case "ms":
            text, whole = f"{done} ms", f"{total} ms"
        case _:
            text, whole = f"{done} {progress.unit}".strip(), str(total)
    return f"{word} {text} of {whole}" if total else f"{word} {text}"


def buffers_text(sessions: Iterable[controller_pb2.Session]) -> str:
    """How far the buffers of sessions are that record: `12.3 MiB in 4 buffers, core 2 is 80 % full`; "" without any."""
    buffers = [buffer for session in sessions for buffer in session.cores]
    if not buffers:
        return ""
    number = len(buffers)
    text = f"{size(sum(buffer.written_bytes for buffer in buffers))} in {number} buffer{'s' if number > 1 else ''}"
    full = sum(buffer.full for buffer in buffers)
    lost = sum(buffer.lost_bytes for buffer in buffers)
    if full:
        return f"{text}, {full} full" + (f", {size(lost)} lost" if lost else "")
    fullest = max(buffers, key=lambda buffer: share_of(buffer.written_bytes, buffer.buffer_bytes))
    unit = "core" if fullest.unit == controller_pb2.BUFFER_UNIT_CORE else "thread"
    part = share_of(fullest.written_bytes, fullest.buffer_bytes)
    return f"{text}, {unit} {fullest.number} is {part * 100:.0f} % full"


def share_of(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def failure_lines(result: coverage_pb2.CoverageResult) -> list[str]:
    """The nodes that failed while others went on."""
    failed, whole = len(result.failures), len(result.failures) + len(result.sessions)
    return [
        f"failed, {number} of {failed} (of {whole} in all): {failure.node}: {failure.message}"
        + (f"; {failure.help}" if failure.help else "")
        for number, failure in enumerate(result.failures, 1)
    ]


def failures_json(result: coverage_pb2.CoverageResult) -> list[dict[str, object]]:
    """For programs: fields as in the API."""
    return [
        {
            "node": failure.node,
            "session": failure.session,
            "reason": failure.reason,
            "message": failure.message,
            "help": failure.help,
        }
        for failure in result.failures
    ]


def session_id(name: str) -> str:
    """The id in `nodes/<node>/sessions/<id>`."""
    return name.rpartition("/")[2]


def plan_json(plan: coverage_pb2.Plan) -> dict[str, object]:
    """For programs: fields as in the API, numbers as numbers."""
    return {
        "nodes": [
            {
                "node": node.node,
                "pids": list(node.pids),
                "period_ms": node.period_ms,
                "left_out": node.left_out,
                "budget_bytes": node.budget_bytes,
                "expected_bytes": node.expected_bytes,
                "expected_bytes_per_second": node.expected_bytes_per_second,
                "expected_slowdown": node.expected_slowdown if node.HasField("expected_slowdown") else None,
            }
            for node in plan.nodes
        ],
        "expected_bytes": plan.expected_bytes,
        "expected_decode_ms": plan.expected_decode_ms,
        "measured_sessions": plan.measured_sessions,
        "unreachable_nodes": list(plan.unreachable_nodes),
        "not_planned": [{"reason": one.reason, "instances": one.instances} for one in plan.not_planned],
    }


def operation_json(operation: operation_pb2.Operation) -> dict[str, object]:
    """An operation's own fields, without what was asked for and answered."""
    fields = MessageToDict(operation, preserving_proto_field_name=True)
    return {key: value for key, value in fields.items() if key not in ("request", "response")}
