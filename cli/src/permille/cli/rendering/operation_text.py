"""Operations of the coverage service, on the terminal and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from permille.api.coverage.v1 import coverage_pb2
from permille.api.operation.v1 import operation_pb2
from permille.cli.rendering.table_cell import cell
from permille.cli.rendering.table_layout import Column
from permille.cli.rendering.text_table import TextTable
from permille.cli.rendering.trace_lines import operation_json, stage_text
from permille.cli.rendering.units import moment, retention

Operation = operation_pb2.Operation
_COLOURS = {"done": "green", "failed": "red", "cancelled": "yellow"}


def operation_table(operations: Sequence[Operation]) -> TextTable:
    """One row for each, in the order given."""
    table = TextTable(
        Column("OPERATION"),
        Column("TARGET", least=12),
        Column("PURPOSE", rank=2),
        Column("BEGUN (UTC)", rank=1),
        Column("STATE", least=12),
        Column("CALLER", rank=3),
        head_style="bold",
    )
    for one in operations:
        wish = _wish(one)
        state = _state(one)
        table.add_row(
            one.name,
            cell(_target(wish.target)),
            _purpose(wish),
            moment(one.create_time.ToNanoseconds()),
            cell(state if one.done else stage_text(one.progress), style=_COLOURS.get(state, "")),
            cell(one.caller),
        )
    return table


def operation_lines(operation: Operation) -> Iterator[str]:
    """What it is, and how far, or why it failed."""
    wish = _wish(operation)
    yield f"{operation.name}  {_target(wish.target)}  {_purpose(wish)}"
    begun = moment(operation.create_time.ToNanoseconds())
    yield f"begun {begun} UTC by {operation.caller or '?'} as request {operation.request_id}"
    if wish.retention_s:
        yield _kept(operation, wish.retention_s)
    yield _state(operation) if operation.done else stage_text(operation.progress)
    if operation.HasField("error"):
        yield f"{operation.error.message}" + (f"; {operation.error.help}" if operation.error.help else "")


def listed_json(operation: Operation) -> dict[str, object]:
    """For programs: the operation's own fields, with the target and the purpose that were asked for."""
    wish = _wish(operation)
    return {
        **operation_json(operation),
        "done": operation.done,
        "state": _state(operation).upper(),
        "target": _target(wish.target),
        "purpose": _purpose(wish),
        "retention_s": wish.retention_s,
    }


def _kept(operation: Operation, retention_s: int) -> str:
    if not operation.done:
        return f"what it records is kept for {retention(retention_s)} after its end"
    until_ns = operation.update_time.ToNanoseconds() + retention_s * 1_000_000_000
    return f"what it recorded is kept until {moment(until_ns)} UTC"


def _wish(operation: Operation) -> coverage_pb2.CoverageRequest:
    request = coverage_pb2.StartCoverageRequest()
    operation.request.Unpack(request)
    return request.coverage


def _state(operation: Operation) -> str:
    if not operation.done:
        return "running"
    if not operation.HasField("error"):
        return "done"
    return "cancelled" if operation.error.reason == "OPERATION_CANCELLED" else "failed"


def _purpose(wish: coverage_pb2.CoverageRequest) -> str:
    word = coverage_pb2.Purpose.Name(wish.purpose).removeprefix("PURPOSE_").lower().replace("_", "-")
    return "on-demand" if word == "unspecified" else word


def _target(target: coverage_pb2.Target) -> str:
    """In one word, as the options of `start` name it."""
    if target.pids:
        named = "pid " + ",".join(map(str, target.pids))
    elif target.process_name:
        named = target.process_name
    else:
        groups = {
            "cgroup": target.cgroup,
            "container": target.container_id,
            "pod": target.pod,
            "selector": target.selector,
        }
        named = next((f"{kind} {value}" for kind, value in groups.items() if value), "?")
    return f"{named} on {target.node.removeprefix('nodes/')}" if target.node else named
