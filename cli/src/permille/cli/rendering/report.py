"""What a report says, before it becomes text or a page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cached_property
from operator import attrgetter
from typing import Any, Protocol


class SessionFacts(Protocol):
    """What a report needs to know of its session."""

    @property
    def name(self) -> str: ...
    @property
    def session_id(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def backend(self) -> str: ...
    @property
    def purpose(self) -> str: ...
    @property
    def start_ns(self) -> int: ...
    @property
    def end_ns(self) -> int: ...
    @property
    def period_ms(self) -> int: ...
    @property
    def stop_reason(self) -> str: ...
    @property
    def raw_bytes(self) -> int: ...
    @property
    def stored_bytes(self) -> int: ...
    @property
    def lost_bytes(self) -> int: ...
    @property
    def unrecorded_bytes(self) -> int: ...
    @property
    def counters(self) -> Mapping[str, int]: ...
    @property
    def instructions(self) -> int: ...
    @property
    def calls(self) -> int: ...


@dataclass(frozen=True)
class FunctionRow:
    """One function over all threads; `symbol_status` begins with `none` when the name is only an address.

    `category`: empty for sessions that were decoded before there were categories.
    """

    name: str
    module: str
    build_id: str
    address: int
    symbol_status: str
    file: str
    line: int
    calls: int
    self_instructions: int
    total_instructions: int
    self_ns: int
    total_ns: int
    category: str = ""
    function: int = -1

    @property
    def nameless(self) -> bool:
        """Whether no symbol covers it."""
        return self.symbol_status.startswith("none")


@dataclass(frozen=True)
class InlinedRow:
    """Instructions of a function that belong to what is inlined into it: the last of `chain`, within the others."""

    function: int
    chain: str
    instructions: int


@dataclass(frozen=True)
class SegmentRow:
    """One thread's stream."""

    segment: int
    pid: int
    tid: int
    thread: str
    core: int
    size_bytes: int
    stored_bytes: int
    lost_bytes: int
    buffer_full: bool
    instructions: int
    branches: int
    errors: int
    first_ns: int
    last_ns: int
    decode_ms: int


@dataclass(frozen=True)
class LossRow:
    """All losses of one kind, or of several `kinds`; `knob`: what makes them fewer."""

    reason: str
    knob: str
    places: int
    size_bytes: int
    length_ns: int
    kinds: int = 1


def largest_losses(losses: list[LossRow], most: int) -> list[LossRow]:
    """The first `most` and, in one row, all others: together they are the whole."""
    others = losses[most:]
    if len(others) < 2:
        return losses
    kinds = sum(row.kinds for row in others)
    rest = LossRow(
        reason=f"and {kinds:,} more reasons",
        knob="permille query lists them, from the table losses",
        places=sum(row.places for row in others),
        size_bytes=sum(row.size_bytes for row in others),
        length_ns=sum(row.length_ns for row in others),
        kinds=kinds,
    )
    return [*losses[:most], rest]


@dataclass(frozen=True)
class Report:
    """One session, the functions by self instructions, the streams, the losses by size."""

    session: SessionFacts
    functions: list[FunctionRow]
    segments: list[SegmentRow]
    losses: list[LossRow]
    # What the decoder says of the session as a whole.
    remarks: list[str] = field(default_factory=list)
    # None: not asked for.
    inlined: list[InlinedRow] | None = None

    def inlined_into(self, row: FunctionRow) -> list[InlinedRow]:
        """What is inlined into the function, that with the most instructions first."""
        return self._inlined_by_function.get(row.function, [])

    @cached_property
    def _inlined_by_function(self) -> dict[int, list[InlinedRow]]:
        found: dict[int, list[InlinedRow]] = defaultdict(list)
        for one in self.inlined or ():
            found[one.function].append(one)
        return dict(found)

    @property
    def self_instructions(self) -> int:
        """All instructions that were decoded."""
        return sum(row.self_instructions for row in self.functions)

    @property
    def self_ns(self) -> int:
        """The time that is accounted to functions, over all threads."""
        return sum(row.self_ns for row in self.functions)


@dataclass(frozen=True)
class CategoryRow:
    """All functions of one category."""

    category: str
    functions: int
    calls: int
    self_instructions: int
    self_ns: int


def categories(report: Report) -> list[CategoryRow]:
    """By self instructions; none for sessions that were decoded before there were categories."""
    rows: dict[str, list[FunctionRow]] = defaultdict(list)
    for row in report.functions:
        if row.category:
            rows[row.category].append(row)
    found = [
        CategoryRow(
            category=category,
            functions=len(members),
            calls=sum(row.calls for row in members),
            self_instructions=sum(row.self_instructions for row in members),
            self_ns=sum(row.self_ns for row in members),
        )
        for category, members in rows.items()
    ]
    return sorted(found, key=lambda row: (-row.self_instructions, row.category))


@dataclass(frozen=True)
class Note:
    """Something that a reader should know; `way_out` may be empty."""

    text: str
    way_out: str = ""


class Order(StrEnum):
    """What the functions are sorted by."""

    SELF = "self"
    TOTAL = "total"
    SELF_TIME = "self-time"
    TOTAL_TIME = "total-time"
    CALLS = "calls"


COLUMNS = {
    Order.SELF: "self_instructions",
    Order.TOTAL: "total_instructions",
    Order.SELF_TIME: "self_ns",
    Order.TOTAL_TIME: "total_ns",
    Order.CALLS: "calls",
}


def top(functions: Sequence[FunctionRow], order: Order, limit: int) -> list[FunctionRow]:
    """The first by that order; 0: all."""
    ranked = sorted(functions, key=attrgetter(COLUMNS[order]), reverse=True)
    return ranked[:limit] if limit else ranked


def notes(report: Report) -> list[Note]:
    """Frames without symbols with the reason, the decoder's remarks, full streams, a target that ended early."""
    found = [*_nameless(report), *map(Note, report.remarks)]
    full = sum(segment.buffer_full for segment in report.segments)
    if full:
        found.append(
            Note(
                f"the buffers of {full} of {len(report.segments)} threads ran full: what came later is missing",
                "permille trace --buffer SIZE with a larger size, or a shorter --for",
            )
        )
    if report.session.stop_reason == "TARGET_EXITED":
        found.append(Note("the program ended before the period was over"))
    if report.session.stop_reason == "CONTROLLER_LOST":
        found.append(Note("the controller died during the recording, which ended by itself; what it recorded is here"))
    if report.inlined == [] and report.functions:
        found.append(
            Note(
                "nothing is known of inlined functions: there is no debug information, or it was not asked for",
                "`inlined = true` in [decoder] tells them of sessions that are decoded from then on",
            )
        )
    if not report.functions:
        found.append(_nothing(report))
    return found


def _nothing(report: Report) -> Note:
    # A target that slept leaves no packets that could be lost.
    if report.session.lost_bytes or report.losses:
        return Note("nothing could be decoded: the losses say why")
    if report.session.backend.startswith("imported:"):
        return Note("the packets that were imported tell of no instruction")
    return Note("nothing was executed: the target slept or waited", "trace while it has work to do")


def _nameless(report: Report) -> list[Note]:
    modules: dict[tuple[str, str], list[FunctionRow]] = defaultdict(list)
    for row in report.functions:
        if row.nameless:
            reason = row.symbol_status.partition(":")[2].strip() or "it has no symbols"
            modules[row.module or "code without a file", reason].append(row)
    whole = report.self_instructions
    ranked = sorted(modules.items(), key=lambda item: -sum(row.self_instructions for row in item[1]))
    found = []
    for (module, reason), rows in ranked:
        weight = sum(row.self_instructions for row in rows)
        part = f"{100 * weight / whole:.1f} % of the instructions" if whole else "no instructions"
        found.append(
            Note(
                f"{module}: {len(rows)} functions without a name ({part}): {reason}",
                "install its debug symbols (Debian: the package ending in -dbgsym) and trace again,"
                " or give them later: permille upload-binary FILE --debug FILE.debug,"
                " then permille report SESSION --again"
                if rows[0].build_id
                else "",
            )
        )
    return found


def report_json(report: Report, order: Order, limit: int) -> dict[str, Any]:
    """For programs: fields as in the tables."""
    session = report.session
    return {
        "session": {
            "name": session.name,
            "session_id": session.session_id,
            "target": session.target,
            "backend": session.backend,
            "purpose": session.purpose,
            "start_ns": session.start_ns,
            "end_ns": session.end_ns,
            "period_ms": session.period_ms,
            "stop_reason": session.stop_reason,
            "raw_bytes": session.raw_bytes,
            "stored_bytes": session.stored_bytes,
            "lost_bytes": session.lost_bytes,
            "unrecorded_bytes": session.unrecorded_bytes,
            "counters": dict(session.counters),
            "instructions": session.instructions,
            "calls": session.calls,
        },
        "functions": [asdict(row) for row in top(report.functions, order, limit)],
        "functions_total": len(report.functions),
        "categories": [asdict(row) for row in categories(report)],
        **({} if report.inlined is None else {"inlined": [asdict(row) for row in report.inlined]}),
        "segments": [asdict(row) for row in report.segments],
        "losses": [asdict(row) for row in report.losses],
        "notes": [asdict(note) for note in notes(report)],
    }
