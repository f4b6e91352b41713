"""What a recording is wanted of: options that several commands have."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer
from permille.api.coverage.v1 import coverage_pb2
from permille.cli.commands.trace import Purpose, purpose_value
from permille.cli.rendering.units import parse_duration_ms, parse_retention_s, parse_size
from permille.cli.target_options import Cgroup, Container, Keep, Name, NodeName, Pids, Pod, Selector, target_of
from permille.mesh.errors import InvalidArgument

# Each with its default.
_OPTIONS: dict[str, tuple[Any, Any]] = {
    "name": (Name, ""),
    "pid": (Pids, None),
    "cgroup": (Cgroup, ""),
    "container": (Container, ""),
    "pod": (Pod, ""),
    "selector": (Selector, ""),
    "node": (NodeName, ""),
    "period": (
        Annotated[str, typer.Option("--for", "-f", metavar="TIME", help="How long. Default: it is decided.")],
        "",
    ),
    "buffer": (Annotated[str, typer.Option(metavar="SIZE", help="Memory for trace buffers on each node.")], ""),
    "keep": (Keep, ""),
    "purpose": (
        Annotated[Purpose, typer.Option(help="Why: an anomaly concerns every replica, a profile takes a sample.")],
        Purpose.PROFILING,
    ),
    "priority": (
        Annotated[int | None, typer.Option(min=0, max=100, help="How important. Default: by purpose.")],
        None,
    ),
    "namespace": (Annotated[str, typer.Option(metavar="NAME", help="Whose quota it counts against.")], ""),
    "rounds": (
        Annotated[
            int,
            typer.Option(
                min=0,
                max=64,
                metavar="N",
                help="One replica after the other, at most N rounds, while another one pays.",
            ),
        ],
        0,
    ),
    "min_gain": (
        Annotated[
            float,
            typer.Option(
                min=0, help="With --rounds: so many new functions must be expected for each MiB. 0: the mesh's setting."
            ),
        ],
        0.0,
    ),
    "min_gain_per_core_second": (
        Annotated[
            float,
            typer.Option(
                min=0, help="And so many for each second of a traced or decoding core. 0: the mesh's setting."
            ),
        ],
        0.0,
    ),
}


def wishing(function: Callable[..., None]) -> Callable[..., None]:
    """A function of an `Invocation`, a `wish` and its own options, as one that takes these options too."""
    hints = get_type_hints(function, include_extras=True)
    own = [
        parameter.replace(annotation=hints[parameter.name])
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name != "wish"
    ]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
        for name, (annotation, default) in _OPTIONS.items()
    ]

    @wraps(function)
    def run(invocation: Any, **options: Any) -> None:
        said = {name: options.pop(name) for name in _OPTIONS}
        function(invocation, wish=_wish(**said), **options)

    del run.__wrapped__
    run.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in [*own, *added]}
    return run


def _wish(
    *,
    name: str,
    pid: list[int] | None,
    cgroup: str,
    container: str,
    pod: str,
    selector: str,
    node: str,
    period: str,
    buffer: str,
    keep: str,
    purpose: Purpose,
    priority: int | None,
    namespace: str,
    rounds: int,
    min_gain: float,
    min_gain_per_core_second: float,
) -> coverage_pb2.CoverageRequest:
    wish = coverage_pb2.CoverageRequest(
        target=target_of(
            pid=pid,
            name=name,
            cgroup=cgroup,
            container=container,
            pod=pod,
            selector=selector,
            node=node,
            example="permille coverage plan --name NAME",
        ),
        purpose=purpose_value(purpose),
        period_ms=parse_duration_ms(period) if period else 0,
        budget_bytes=parse_size(buffer) if buffer else 0,
        retention_s=parse_retention_s(keep) if keep else 0,
        priority=priority,
        namespace=namespace,
    )
    _require_gains({"--min-gain": min_gain, "--min-gain-per-core-second": min_gain_per_core_second}, rounds)
    if rounds:
        wish.rounds.limit, wish.rounds.min_gain = rounds, min_gain
        wish.rounds.min_gain_per_core_second = min_gain_per_core_second
    return wish


def _require_gains(gains: Mapping[str, float], rounds: int) -> None:
    for option, gain in gains.items():
        if not math.isfinite(gain):
            raise InvalidArgument(
                f"{option} is {gain}",
                reason="GAIN_OUT_OF_RANGE",
                help="a gain is a number of new functions, more than zero; leave it out for the mesh's setting",
                metadata={"gain": option},
            )
        if gain and not rounds:
            raise InvalidArgument(
                f"{option} is wanted of rounds, and there are none",
                reason="ROUNDS_MISSING",
                help="give --rounds: how many there may be at most",
                metadata={"gain": option},
            )
