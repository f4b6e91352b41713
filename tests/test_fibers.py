"""Fibers of the same functions, which all wait behind the same call."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.whole_mesh import WholeMesh, session_of

FIBERS = 4
# Each request waits once. Nothing that returns tells one fiber from another.
SOURCE = f"""
#include <stdlib.h>
#include <ucontext.h>
static ucontext_t fibers[{FIBERS}], begun;
static int running;
static volatile long sum;
__attribute__((noinline)) void spin(int turns) {{ for (int i = 0; i < turns; i++) sum += i; }}
__attribute__((noinline)) void wait_for_others(void) {{
    int from = running;
    running = (from + 1) % {FIBERS};
    swapcontext(&fibers[from], &fibers[running]);
    sum++;
}}
__attribute__((noinline)) void request(int fiber) {{
    spin(1000 * (fiber + 1));
    wait_for_others();
    spin(500);
}}
void serve(int fiber) {{ for (;;) request(fiber); }}
int main(void) {{
    for (int fiber = 0; fiber < {FIBERS}; fiber++) {{
        getcontext(&fibers[fiber]);
        fibers[fiber].uc_stack.ss_sp = malloc(1 << 16);
        fibers[fiber].uc_stack.ss_size = 1 << 16;
        makecontext(&fibers[fiber], (void (*)(void))serve, 1, fiber);
    }}
    swapcontext(&begun, &fibers[0]);
}}
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    source, program = tmp_path / "fibers.c", tmp_path / "fibers"
    source.write_text(SOURCE)
    subprocess.run(["gcc", "-O1", "-o", str(program), str(source)], check=True)
    return program


def test_no_call_begins_in_one_fiber_and_ends_in_another(mesh: WholeMesh, program: Path) -> None:
    with (
        mesh.running(str(program)) as target,
        mesh.started("trace", "--pid", str(target.pid), "--for", "200ms", "--json") as tracing,
    ):
        session = session_of(mesh.finished(tracing))
    rows = mesh.rows(
        "SELECT begin_truncated, end_truncated, count(*) AS calls FROM calls"
        f" WHERE session_id = '{session}' AND name = 'request' GROUP BY ALL"
    )
    parts = {(row["begin_truncated"], row["end_truncated"]): row["calls"] for row in rows}
    # Of each request one part up to where it waits, and one from there on.
    begun, resumed = parts.pop((False, True)), parts.pop((True, False))
    assert begun > 50 and abs(begun - resumed) <= 1, rows
    # Where the recording ended.
    assert sum(parts.values()) <= 1, rows
