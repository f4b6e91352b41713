"""Programs and libraries that are removed or replaced while they run: an update, a new release."""

from __future__ import annotations

import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.whole_mesh import WholeMesh

LIBRARY = """
    __attribute__((noinline)) long {inner}(long x) {{ return x * 3 + 1; }}
    long work(long x) {{ return {inner}(x) + {inner}(x + 1); }}
"""
PROGRAM = """
    #include <stdio.h>
    #include <unistd.h>
    long work(long x);
    __attribute__((noinline)) static long only_in_symtab(long x) { return work(x) + 1; }
    int main(void)
    {
        long sum = 0;
        puts("ready"), fflush(stdout);
        for (;;) {
            for (int i = 0; i < 1000; i++)
                sum += only_in_symtab(i);
            usleep(1000);
        }
    }
"""


def build(target: Path, source: str, *arguments: str) -> None:
    command = ["gcc", "-O1", "-o", str(target), "-xc", "-", "-xnone", *arguments]
    subprocess.run(command, input=textwrap.dedent(source).encode(), check=True)


def remove(file: Path) -> None:
    file.unlink()


def replace(file: Path) -> None:
    other = file.with_suffix(".new")
    build(other, LIBRARY.format(inner="another_one"), "-shared", "-fPIC")
    other.rename(file)


@pytest.mark.parametrize("change", [remove, replace])
def test_functions_of_a_binary_that_has_no_name_any_more_have_theirs(
    mesh: WholeMesh, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    library, program = tmp_path / "libwork.so", tmp_path / "program"
    build(library, LIBRARY.format(inner="inner"), "-shared", "-fPIC")
    build(program, PROGRAM, str(library), f"-Wl,-rpath,{tmp_path}")
    with mesh.running(str(program), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        # Its libraries are mapped.
        assert process.stdout.readline() == "ready\n"
        change(library)
        program.unlink()
        session = mesh.trace_of_work("--pid", str(process.pid), function="inner", calls=2)
    report = mesh.report(session)
    assert report["session"]["lost_bytes"] == 0, report["losses"]
    found = {row["name"]: row for row in report["functions"]}
    # `work` is called through the PLT; the program's own function is in its .symtab alone.
    assert found["inner"]["calls"] > 2 * found["work"]["calls"] - 4
    assert found["only_in_symtab"]["calls"] > 1
    assert not [name for name in found if name.startswith("[generated]")]
