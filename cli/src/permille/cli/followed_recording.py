"""A recording that was planned: begun, followed to its end, and told."""

from __future__ import annotations

import secrets
from contextlib import AsyncExitStack

from permille.api.coverage.v1 import coverage_pb2
from permille.api.operation.v1 import operation_pb2
from permille.cli.client import MeshClient, answer
from permille.cli.invocation import Invocation
from permille.cli.live_buffers import buffers_told
from permille.cli.operation_progress import OperationProgress
from permille.cli.progress_display import ProgressDisplay
from permille.cli.recording_trouble import trouble_told
from permille.cli.rendering.trace_lines import failure_lines, failures_json, operation_json, plan_json, session_id
from permille.mesh.errors import PermilleError


async def planned(
    client: MeshClient, wish: coverage_pb2.CoverageRequest, *, request_id: str = ""
) -> coverage_pb2.Plan | None:
    """What would be recorded, at which cost. Raises the service's error.

    None where it is refused to a request with a `request_id`: the recording that the request_id began may be why, and
    whether there is none the start says.
    """
    try:
        request = coverage_pb2.PlanCoverageRequest(coverage=wish)
        return (await answer((await client.coverage()).PlanCoverage(request))).plan
    except PermilleError:
        if not request_id:
            raise
        return None


async def recorded(
    invocation: Invocation,
    client: MeshClient,
    wish: coverage_pb2.CoverageRequest,
    plan: coverage_pb2.Plan | None,
    *,
    request_id: str,
    patience_s: float,
) -> operation_pb2.Operation:
    """The finished operation. Raises its error."""
    started = await begun(client, wish, request_id)
    with ProgressDisplay(invocation.notes, silent=invocation.as_json) as display:
        following = progress_of(client, started.name, display, patience_s)
        nodes = sorted({node.node for node in (*plan.nodes, *plan.later)}) if plan is not None else []
        async with AsyncExitStack() as told:
            await told.enter_async_context(trouble_told(client, started.name, nodes, display.trouble))
            if display.moves:
                await told.enter_async_context(buffers_told(client, started.name, nodes, display.buffers))
            return await following.follow(started)


async def begun(client: MeshClient, wish: coverage_pb2.CoverageRequest, request_id: str) -> operation_pb2.Operation:
    """The operation, or the one that the same request_id began before. Raises the service's error."""
    request = coverage_pb2.StartCoverageRequest(request_id=request_id or secrets.token_hex(16), coverage=wish)
    return (await answer((await client.coverage()).StartCoverage(request))).operation


def progress_of(
    client: MeshClient, name: str, display: ProgressDisplay, patience_s: float, *, cancels: bool = True
) -> OperationProgress:
    """What follows an operation of coverage and shows it; see `OperationProgress`."""
    return OperationProgress(
        client.coverage,
        tell=display.tell,
        away=display.away,
        patience_s=patience_s,
        later=f"`permille coverage get {name}` shows how far it is; `permille coverage cancel` ends it",
        cancels=cancels,
    )


def result_of(done: operation_pb2.Operation) -> coverage_pb2.CoverageResult:
    """What a finished operation achieved."""
    result = coverage_pb2.CoverageResult()
    done.response.Unpack(result)
    return result


def result_json(done: operation_pb2.Operation, result: coverage_pb2.CoverageResult) -> dict[str, object]:
    """For programs."""
    return {
        "operation": operation_json(done),
        "plan": plan_json(result.plan),
        "sessions": list(result.sessions),
        "failures": failures_json(result),
    }


def tell_result(invocation: Invocation, result: coverage_pb2.CoverageResult) -> None:
    """For people: the nodes that failed, the sessions, and what to type next."""
    for line in failure_lines(result):
        invocation.notes.print(line, markup=False)
    told = [f"session {name}" for name in result.sessions]
    if result.sessions:
        told.append(invocation.hint("report", session_id(result.sessions[-1])))
    for line in told:
        invocation.console.print(line, markup=False)
