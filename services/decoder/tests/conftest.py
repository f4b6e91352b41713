"""A decoded session in real tables, small enough to know every row."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from permille.mesh.store import ObjectStore, open_store
from permille.mesh.table_schemas import SCHEMAS
from permille.mesh.tables import Tables

START_NS = 1_800_000_000_000_000_000
SESSION = "small"
# Per thread: depth, function, start, end (ns after the start of the session), instructions of its own.
CALLS = {
    0: [
        (0, 0, 0, 1000, 10),
        (1, 1, 100, 400, 20),
        (2, 2, 150, 250, 5),
        (2, 2, 260, 260, 1),
        (1, 1, 400, 900, 30),
        (2, 2, 500, 600, 5),
        (0, 3, 1000, 1500, 7),
    ],
    1: [(0, 1, 50, 60, 3)],
}
FUNCTIONS = [
    ("main", "/usr/bin/app", "app.c", 3),
    ("std::map<int, char; long>::find(int)", "/usr/bin/app", "app.cc", 40),
    ("0x7f0000001234", "/usr/lib/libx.so", "", 0),
    ("strlen", "/usr/lib/libc.so.6", "", 0),
]


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store((tmp_path / "store").as_uri())


@pytest.fixture
def new_row() -> Callable[..., dict[str, Any]]:
    """A row of a table with the values given and zeros."""

    def row(table: str, **values: object) -> dict[str, object]:
        empty = {"string": "", "bool": False, "date32[day]": date(2026, 11, 21)}
        return {field.name: empty.get(str(field.type), 0) for field in SCHEMAS[table]} | values

    return row


@pytest.fixture
async def decoded(store: ObjectStore, new_row: Callable[..., dict[str, Any]]) -> Tables:
    """Tables with the session SESSION, and another one that must not be seen."""
    tables = Tables(store)
    for session_id in (SESSION, "other"):
        rows: dict[str, list[dict[str, object]]] = {name: [] for name in SCHEMAS}
        rows["sessions"].append(
            new_row(
                "sessions",
                session=f"nodes/n/sessions/{session_id}",
                target="app",
                start_ns=START_NS,
                end_ns=START_NS + 2000,
            )
        )
        for number, (name, module, file, line) in enumerate(FUNCTIONS):
            values = {"name": name, "module": module, "file": file, "line": line, "address": -1 - number}
            rows["functions"].append(new_row("functions", function=number, **values))
        for segment, calls in CALLS.items():
            rows["segments"].append(new_row("segments", segment=segment, pid=7, tid=70 + segment, thread=f"t{segment}"))
            for call, (depth, function, start, end, instructions) in enumerate(calls):
                rows["calls"].append(
                    new_row(
                        "calls",
                        segment=segment,
                        call=call,
                        depth=depth,
                        function=function,
                        name=FUNCTIONS[function][0],
                        start_ns=START_NS + start,
                        end_ns=START_NS + end,
                        self_instructions=instructions,
                    )
                )
        for name, listed in rows.items():
            batch = pa.RecordBatch.from_pylist(
                [row | {"session_id": session_id} for row in listed], schema=SCHEMAS[name]
            )
            await tables.replace_session(name, session_id, [batch])
    return tables
