"""The Python mirror of vpt.h against what a C compiler makes of the header."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import pytest
from permille.controller.domain import vpt_layout as vpt

INCLUDE = Path(__file__).parents[1] / "vpt" / "include"
STRUCTS: dict[str, type[ctypes.Structure]] = {
    "vpt_anchor": vpt.Anchor,
    "vpt_planned": vpt.Planned,
    "vpt_control": vpt.Control,
    "vpt_stream": vpt.StreamHeader,
    "vpt_record": vpt.Record,
    "vpt_map": vpt.Map,
    "vpt_mark": vpt.Mark,
}


def compiled(folder: Path, body: str) -> list[str]:
    source, program = folder / "dump.c", folder / "dump"
    source.write_text(
        "#include <stddef.h>\n#include <stdio.h>\n#include <permille/vpt.h>\n"
        f'#define P(x) printf("%llu\\n", (unsigned long long)(x))\nint main(void) {{ {body} return 0; }}\n'
    )
    subprocess.run(["gcc", f"-I{INCLUDE}", "-o", program, source], check=True)
    return subprocess.run([program], check=True, capture_output=True, text=True).stdout.split()


@pytest.mark.parametrize("name", STRUCTS)
def test_every_field_is_where_the_compiler_puts_it(tmp_path: Path, name: str) -> None:
    mirror = STRUCTS[name]
    fields = [str(field[0]) for field in mirror._fields_]
    body = f"P(sizeof(struct {name}));" + "".join(f"P(offsetof(struct {name}, {field}));" for field in fields)
    size, *offsets = map(int, compiled(tmp_path, body))
    assert size == ctypes.sizeof(mirror)
    assert offsets == [getattr(mirror, field).offset for field in fields]


def test_the_constants_are_the_same(tmp_path: Path) -> None:
    header = (INCLUDE / "permille" / "vpt.h").read_text()
    mirror = {"VPT_MAGIC": vpt.MAGIC, "VPT_VERSION": vpt.VERSION, "VPT_PAGE": vpt.PAGE}
    mirror |= {"VPT_MAX_STREAMS": vpt.MAX_STREAMS}
    mirror |= {f"VPT_{state.name}": state for state in vpt.State}
    mirror |= {f"VPT_STOP_{stop.name}": stop for stop in vpt.Stop}
    mirror |= {f"VPT_{flag.name}": flag for flag in vpt.Flags}
    mirror |= {f"VPT_{kind.name}": kind for kind in vpt.RecordKind}
    named = set(re.findall(r"^\s+(VPT_\w+) =", header, re.MULTILINE))
    assert named <= set(mirror)
    values = compiled(tmp_path, "".join(f"P({name});" for name in mirror))
    assert [int(value) for value in values] == [int(value) for value in mirror.values()]
