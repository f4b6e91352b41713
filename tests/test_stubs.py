"""Calls of another library's functions, bound on their first call while they are recorded."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.whole_mesh import WholeMesh, session_of

NAMES = [
    "isalnum",
    "isalpha",
    "iscntrl",
    "isdigit",
    "tolower",
    "toupper",
    "abs",
    "labs",
    "ffs",
    "ffsl",
    "ntohl",
    "ntohs",
]
# Each is called twice when a line comes: the first call binds its name.
SOURCE = """
#include <unistd.h>
%s
volatile long result;
__attribute__((noinline)) void step(int number) {
    switch (number) {
%s
    }
}
int main(void) {
    char line;
    for (int number = 0; read(0, &line, 1) == 1; number++)
        step(number);
}
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    declared = "\n".join(f"extern long {name}(long);" for name in NAMES)
    cases = "\n".join(
        f"    case {number}: result += {name}(result); result += {name}(result); break;"
        for number, name in enumerate(NAMES)
    )
    source, program = tmp_path / "lazy.c", tmp_path / "lazy"
    source.write_text(SOURCE % (declared, cases))
    options = ["-O1", "-w", "-fno-builtin", "-fcf-protection=full", "-Wl,-z,lazy", "-Wl,-z,ibtplt"]
    subprocess.run(["gcc", *options, "-o", str(program), str(source)], check=True)
    return program


def test_a_call_that_binds_its_name_goes_through_the_resolver_and_the_next_one_does_not(
    mesh: WholeMesh, program: Path
) -> None:
    with (
        mesh.running(str(program), stdin=subprocess.PIPE) as target,
        mesh.started("trace", "--pid", str(target.pid), "--for", "50s", "--json") as tracing,
    ):
        mesh.await_recording(target.pid)
        assert target.stdin is not None
        for _ in NAMES:
            target.stdin.write("x")
            target.stdin.flush()
        target.stdin.close()
        session = session_of(mesh.finished(tracing))
    whole = f"c.session_id = '{session}'"
    assert mesh.rows(f"SELECT name FROM calls c WHERE {whole} AND name LIKE '%@plt' AND NOT begin_truncated") == []
    called = mesh.rows(
        "SELECT c.name, f.module, c.tail_call FROM calls c JOIN functions f USING (session_id, function)"
        " JOIN calls p ON p.session_id = c.session_id AND p.segment = c.segment AND p.call = c.parent"
        f" WHERE {whole} AND p.name = 'step' ORDER BY c.segment, c.call"
    )
    resolver = [row for row in called if "/ld-" in row["module"]]
    others = [row for row in called if "/ld-" not in row["module"]]
    assert len(resolver) == len(NAMES), called
    assert not any(row["tail_call"] for row in resolver)
    # What was bound ends the resolver by a jump; the second call finds it at once.
    assert [row["tail_call"] for row in others] == [True, False] * len(resolver)
    assert all(first["name"] == second["name"] for first, second in zip(others[::2], others[1::2], strict=True))
    (sums,) = mesh.rows(
        "SELECT CAST(sum(self_instructions) AS BIGINT) AS functions, any_value(s.instructions) AS session"
        f" FROM functions c JOIN sessions s USING (session_id) WHERE {whole}"
    )
    assert sums["functions"] == sums["session"] > 0
