"""What `permille pt stat` counted, as lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from permille.cli.rendering.units import count

_FLOW = {
    "instructions": "instructions",
    "blocks": "blocks",
    "conditional_branches": "conditional branches",
    "taken": "  taken",
    "not_taken": "  not taken",
    "jumps": "direct jumps",
    "indirect": "indirect branches",
    "indirect_jumps": "  indirect jumps",
    "indirect_calls": "  indirect calls",
    "calls": "calls",
    "returns": "returns",
    "compressed_returns": "compressed returns",
    "far_transfers": "far transfers",
    "interrupts": "interrupts",
    "overflows": "overflows",
    "error_count": "errors",
    "lost_bytes": "lost bytes",
}
_SHOWN_ERRORS = 10
_SHOWN_THREADS = 20


def stat_lines(told: Mapping[str, Any]) -> Iterator[str]:
    """One number a line, for each stream and, where there are several, for all together."""
    cpu = f", cpu {told['cpu']}" if told["cpu"] else ""
    yield f"{told['file']}: {told['kind']}{cpu}"
    for stream in told["streams"]:
        yield ""
        yield f"stream {stream['index']}: {stream['name']}{_threads(stream)}"
        yield from _numbers(stream)
        if stream["recorder_losses"]:
            yield _line("recorder's losses", len(stream["recorder_losses"]))
        if stream["core"] is not None:
            yield from _instructions(stream["threads"])
        yield from _errors(stream)
    if len(told["streams"]) > 1:
        yield ""
        yield "all streams"
        yield from _numbers(told["total"])
    yield ""
    yield f"peak memory: {count(told['peak_memory_bytes'])} bytes"


def peak_memory_bytes() -> int:
    """The most memory that this process had at any time, with what it read of mapped files."""
    status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))


def total(streams: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The sums over all streams; times from the first to the last."""
    packets: dict[str, int] = {}
    for stream in streams:
        for name, number in stream["packets"].items():
            packets[name] = packets.get(name, 0) + number
    flows = [stream["flow"] for stream in streams if stream["flow"] is not None]
    firsts = [stream["first_tsc"] for stream in streams if stream["first_tsc"] is not None]
    lasts = [stream["last_tsc"] for stream in streams if stream["last_tsc"] is not None]
    sums = {name: sum(stream[name] for stream in streams) for name in _SUMS}
    flow: dict[str, Any] | None = {name: sum(one[name] for one in flows) for name in _FLOW} if flows else None
    if flow is not None:
        flow["accesses"] = _accesses(flows)
    return {
        **sums,
        "packets": dict(sorted(packets.items())),
        "first_tsc": min(firsts, default=None),
        "last_tsc": max(lasts, default=None),
        "flow": flow,
    }


def _accesses(flows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    sums: dict[tuple[str, int], list[int]] = {}
    for one in flows:
        for row in one["accesses"]:
            known = sums.setdefault((row["instruction_class"], row["width_bytes"]), [0, 0])
            known[0] += row["reads"]
            known[1] += row["writes"]
    return [
        {"instruction_class": name, "width_bytes": width, "reads": reads, "writes": writes}
        for (name, width), (reads, writes) in sums.items()
    ]


_SUMS = ("bytes", "packet_count", "tnt_bits", "bad_packets", "bad_packet_bytes")


def _threads(stream: Mapping[str, Any]) -> str:
    threads = stream["threads"]
    if stream["core"] is not None:
        return f", {len(threads)} threads"
    known = [one for one in threads if one["tid"]]
    return "".join(f" of process {one['pid']} {one['name']}".rstrip() for one in known)


def _numbers(told: Mapping[str, Any]) -> Iterator[str]:
    yield _line("bytes", told["bytes"])
    yield _line("packets", told["packet_count"])
    for name, number in sorted(told["packets"].items(), key=lambda item: -item[1]):
        yield _line(f"  {name}", number)
    yield _line("TNT bits", told["tnt_bits"])
    if told["bad_packets"]:
        yield _line("no packets", told["bad_packets"]) + f"  ({count(told['bad_packet_bytes'])} bytes)"
    if told["flow"] is not None:
        for name, shown in _FLOW.items():
            yield _line(shown, told["flow"][name])
        yield from _memory(told["flow"]["accesses"])
    first, last = told["first_tsc"], told["last_tsc"]
    yield (
        "  time                  no TSC packets"
        if first is None
        else _line("time, TSC ticks", last - first) + (f"  ({first} to {last})")
    )


def _memory(accesses: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield _line("memory reads", sum(row["reads"] for row in accesses))
    yield _line("memory writes", sum(row["writes"] for row in accesses))
    for row in sorted(accesses, key=lambda row: -row["reads"] - row["writes"]):
        width = f"{row['width_bytes']} bytes" if row["width_bytes"] else "any width"
        told = f"{row['instruction_class']}, {width}"
        yield f"    {told:<18}{count(row['reads']):>18}  read {count(row['writes']):>18}  written"


def _instructions(threads: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    ran = sorted((one for one in threads if one["instructions"]), key=lambda one: -one["instructions"])
    for one in ran[:_SHOWN_THREADS]:
        yield f"  thread {one['tid']:<13}{count(one['instructions']):>18}  instructions {one['name']}".rstrip()
    if len(ran) > _SHOWN_THREADS:
        yield f"  and {count(len(ran) - _SHOWN_THREADS)} more threads: --json lists all"


def _line(name: str, number: int) -> str:
    return f"  {name:<20}{count(number):>18}"


def _errors(stream: Mapping[str, Any]) -> Iterator[str]:
    errors = stream["errors"]
    for error in errors[:_SHOWN_ERRORS]:
        yield f"  at offset {error['offset']:#x}: {error['reason']}; {count(error['size_bytes'])} bytes lost"
    found = stream["flow"]["error_count"] if stream["flow"] is not None else stream["bad_packets"]
    if found > _SHOWN_ERRORS:
        yield f"  and {count(found - _SHOWN_ERRORS)} more: --json lists the first {count(len(errors))}"
