"""How every bench reports: a table for people, then one JSON object as the last line."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Figure:
    """One measured number: the median of its samples, their range, and what it is held against."""

    value: float
    unit: str
    min: float
    max: float
    anchor: str = ""

    @classmethod
    def of(cls, samples: Sequence[float], unit: str, anchor: str = "") -> Figure:
        """The figure of repeated measurements; raises ValueError when there are none."""
        if not samples:
            raise ValueError("no samples were measured")
        return cls(statistics.median(samples), unit, min(samples), max(samples), anchor)


def ratios(samples: Sequence[float], base: Sequence[float], anchor: str = "") -> Figure:
    """Pairwise ratios of runs that were made in turn, so that a drifting machine drifts under both."""
    return Figure.of([one / other for one, other in zip(samples, base, strict=True)], "x", anchor)


def medians(turns: Sequence[Mapping[str, Figure]]) -> dict[str, Figure]:
    """What was measured in several turns, each figure's median and range over those that have it."""
    found: dict[str, list[Figure]] = {}
    for turn in turns:
        for name, figure in turn.items():
            found.setdefault(name, []).append(figure)
    return {
        name: Figure.of([figure.value for figure in each], each[0].unit, each[0].anchor) for name, each in found.items()
    }


def publish(bench: str, figures: dict[str, Figure]) -> None:
    """Prints the table and, last, the JSON line."""
    width = max(map(len, figures))
    for name, figure in figures.items():
        spread = f"[{figure.min:,.3f} .. {figure.max:,.3f}]"
        print(f"{name:<{width}}  {figure.value:>12,.3f} {figure.unit:<14} {spread:<28} {figure.anchor}")
    machine = {"cpu": cpu_model(), "cores": os.cpu_count(), "kernel": platform.release()}
    print(json.dumps({"bench": bench, "machine": machine, "figures": {k: asdict(f) for k, f in figures.items()}}))


def cpu_model() -> str:
    lines: Iterable[str] = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
