"""`permille trace`."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import Annotated

import typer
from permille.api.controller.v1 import controller_pb2
from permille.api.coverage.v1 import coverage_pb2
from permille.cli.client import MeshClient, answer, in_mesh
from permille.cli.followed_recording import planned, recorded, result_json, result_of, tell_result
from permille.cli.invocation import Invocation, command
from permille.cli.rendering.trace_lines import (
    estimate_line,
    memory_json,
    memory_lines,
    not_planned_lines,
    plan_json,
    unreachable_line,
)
from permille.cli.rendering.units import parse_duration_ms, parse_retention_s, parse_size
from permille.cli.target_options import Cgroup, Container, Keep, Name, NodeName, Pids, Pod, Selector, target_of
from permille.mesh.errors import InvalidArgument

app = typer.Typer(rich_markup_mode="rich", add_completion=False)

_SMALLEST_PSB_BYTES, _LARGEST_PSB_BYTES = 2 << 10, 64 << 20
# The node's own; they are only sent along when something is to be different.
_DEFAULTS = controller_pb2.TraceOptions(psb_freq=3, mtc_freq=3, tsc=True, mtc=True, cyc=True, return_compression=True)
# A clock packet every 2^15 ticks at most: the field has four bits.
_LARGEST_MTC_FREQ = 15


class Purpose(StrEnum):
    """Why somebody looks; it decides the period where none is given."""

    ON_DEMAND = "on-demand"
    ANOMALY = "anomaly"
    PROFILING = "profiling"


class Backend(StrEnum):
    """What records."""

    AUTO = "auto"
    KMOD = "kmod"
    PERF = "perf"
    VPT = "vpt"


_BACKENDS = {
    Backend.AUTO: controller_pb2.BACKEND_UNSPECIFIED,
    Backend.KMOD: controller_pb2.BACKEND_KMOD,
    Backend.PERF: controller_pb2.BACKEND_PERF,
    Backend.VPT: controller_pb2.BACKEND_VPT,
}
_PURPOSES = {
    Purpose.ON_DEMAND: coverage_pb2.PURPOSE_ON_DEMAND,
    Purpose.ANOMALY: coverage_pb2.PURPOSE_ANOMALY,
    Purpose.PROFILING: coverage_pb2.PURPOSE_PROFILING,
}


def purpose_value(purpose: Purpose) -> coverage_pb2.Purpose.ValueType:
    """As the API has it."""
    return _PURPOSES[purpose]


@app.command()
@command
def trace(
    invocation: Invocation,
    *,
    pid: Pids = None,
    name: Name = "",
    cgroup: Cgroup = "",
    container: Container = "",
    pod: Pod = "",
    selector: Selector = "",
    period: Annotated[
        str, typer.Option("--for", "-f", metavar="TIME", help="How long: 500ms, 2s. Default: it is decided.")
    ] = "",
    purpose: Annotated[Purpose, typer.Option(help="Why; decides the default of --for.")] = Purpose.ON_DEMAND,
    node: NodeName = "",
    buffer: Annotated[
        str,
        typer.Option(
            metavar="SIZE", help="Memory for trace buffers on each node: 64MiB, 1GiB. Default: the node's setting."
        ),
    ] = "",
    keep: Keep = "",
    backend: Annotated[
        Backend,
        typer.Option(
            help="What records: kmod the processor, any process, through the kernel module; perf the same, through the"
            " kernel's own driver; vpt programs that were started with `permille run`. `permille doctor` says which of"
            " them work here."
        ),
    ] = Backend.AUTO,
    snapshot: Annotated[
        bool,
        typer.Option(
            "--snapshot",
            help="Where a buffer is full, keep what was written last, until the recording ends, in place of what was"
            " written first. Takes --backend perf.",
        ),
    ] = False,
    cyc: Annotated[
        bool,
        typer.Option("--cyc/--no-cyc", help="Cycle-accurate times; without, fewer bytes.", rich_help_panel="Packets"),
    ] = True,
    mtc: Annotated[
        bool, typer.Option("--mtc/--no-mtc", help="Clock packets between branches.", rich_help_panel="Packets")
    ] = True,
    mtc_freq: Annotated[
        int,
        typer.Option(
            min=0,
            max=_LARGEST_MTC_FREQ,
            help="A clock packet every 2^N crystal clocks.",
            rich_help_panel="Packets",
        ),
    ] = _DEFAULTS.mtc_freq,
    return_compression: Annotated[
        bool,
        typer.Option(
            "--return-compression/--no-return-compression",
            help="One bit for a return to its caller, instead of an address.",
            rich_help_panel="Packets",
        ),
    ] = True,
    psb_period: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="A synchronisation point every so many bytes, 2KiB to 64MiB: closer ones lose less when damaged.",
            rich_help_panel="Packets",
        ),
    ] = "16KiB",
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Only say what it would cost, and which buffer would be how large and why."),
    ] = False,
    request_id: Annotated[
        str,
        typer.Option(metavar="ID", help="Makes a repetition find the same recording instead of starting another."),
    ] = "",
    patience_s: Annotated[
        float,
        typer.Option("--patience", min=1, metavar="SECONDS", help="How long to wait for a mesh that does not answer."),
    ] = 120.0,
) -> None:
    """Record what a program does, for a moment, and decode it.

    First the expected bytes and decode time are printed, then the recording starts at once; it ends by itself after
    its period. Ctrl-C cancels: what was recorded so far is kept.

    A process that was started with `permille run` can be traced, as often as wanted. When a service dies meanwhile the
    work goes on as soon as it is back; nothing is recorded or decoded twice.

    [bold]Examples[/bold]

      permille trace --pid 4711 --for 500ms

      permille trace --name redis-server --for 2s --buffer 512MiB --no-cyc

      permille trace --container 4f1c9a0b77de --for 500ms

      permille trace --name redis-server --for 60s --backend perf --snapshot
    """
    target = target_of(
        pid=pid,
        name=name,
        cgroup=cgroup,
        container=container,
        pod=pod,
        selector=selector,
        node=node,
        example="permille trace --pid PID --for 500ms",
    )
    options = controller_pb2.TraceOptions(
        psb_freq=_psb_freq(psb_period),
        mtc_freq=mtc_freq,
        tsc=True,
        mtc=mtc,
        cyc=cyc,
        return_compression=return_compression,
        snapshot=snapshot,
    )
    wish = coverage_pb2.CoverageRequest(
        target=target,
        purpose=_PURPOSES[purpose],
        period_ms=parse_duration_ms(period) if period else 0,
        budget_bytes=parse_size(buffer) if buffer else 0,
        retention_s=parse_retention_s(keep) if keep else 0,
        backend=_BACKENDS[backend],
    )
    if options != _DEFAULTS:
        wish.options.CopyFrom(options)

    async def work(client: MeshClient) -> None:
        plan = await planned(client, wish, request_id="" if dry_run else request_id)
        if plan is not None:
            _tell_plan(invocation, plan)
            if dry_run:
                _tell_memory(invocation, plan, await asyncio.gather(*(_memory(client, node) for node in plan.nodes)))
                return
        done = await recorded(invocation, client, wish, plan, request_id=request_id, patience_s=patience_s)
        result = result_of(done)
        if invocation.as_json:
            invocation.print_json(result_json(done, result))
            return
        tell_result(invocation, result)

    in_mesh(invocation.config, work)


def _tell_plan(invocation: Invocation, plan: coverage_pb2.Plan) -> None:
    if invocation.as_json:
        return
    invocation.notes.print(estimate_line(plan), markup=False)
    for line in (*not_planned_lines(plan), *filter(None, [unreachable_line(plan)])):
        invocation.notes.print(line, markup=False)


async def _memory(client: MeshClient, node: coverage_pb2.NodePlan) -> controller_pb2.PlanSessionResponse:
    controller = await client.controller(node.node.removeprefix("nodes/"))
    request = controller_pb2.PlanSessionRequest(
        pids=node.pids,
        period_ms=node.period_ms,
        budget_bytes=node.budget_bytes,
        backend=node.backend,
    )
    return await answer(controller.PlanSession(request))


def _tell_memory(
    invocation: Invocation, plan: coverage_pb2.Plan, memory: list[controller_pb2.PlanSessionResponse]
) -> None:
    if invocation.as_json:
        invocation.print_json({"plan": plan_json(plan), "memory": [memory_json(one) for one in memory]})
        return
    for node, divided in zip(plan.nodes, memory, strict=True):
        for line in memory_lines(node.node, divided):
            invocation.console.print(line, markup=False)


def _psb_freq(period: str) -> int:
    """RTIT_CTL.PSBFreq: a PSB every 2^(11 + n) bytes (Intel SDM volume 3, Processor Trace)."""
    wanted = parse_size(period)
    if not _SMALLEST_PSB_BYTES <= wanted <= _LARGEST_PSB_BYTES:
        raise InvalidArgument(
            f"--psb-period {period} is out of range",
            reason="PSB_PERIOD",
            help="choose 2KiB to 64MiB; it is rounded down to a power of two",
        )
    return wanted.bit_length() - 1 - 11
