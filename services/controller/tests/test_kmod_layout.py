"""The ctypes of the module's interface, against its header as a C compiler reads it."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import pytest
from permille.controller.domain import kmod_layout as kmod

HEADERS = Path(__file__).parents[3] / "kmod" / "include" / "uapi"
STRUCTURES = {
    "permille_info": kmod.Info,
    "permille_core_plan": kmod.CorePlan,
    "permille_setup": kmod.Setup,
    "permille_process": kmod.Process,
    "permille_session_status": kmod.SessionStatus,
    "permille_core_status": kmod.CoreStatus,
    "permille_switch": kmod.Switch,
    "permille_ring": kmod.Ring,
}
NUMBERS = {
    "PERMILLE_UAPI_VERSION": kmod.VERSION,
    "PERMILLE_MAX_PROCESSES": kmod.MAX_PROCESSES,
    "PERMILLE_MIN_PERIOD_NS": kmod.MIN_PERIOD_NS,
    "PERMILLE_MAX_PERIOD_NS": kmod.MAX_PERIOD_NS,
    "PERMILLE_MIN_BUFFER": kmod.MIN_BUFFER_BYTES,
    "PERMILLE_MAX_BUFFER": kmod.MAX_BUFFER_BYTES,
    "PERMILLE_MIN_RECORDS": kmod.MIN_RECORDS,
    "PERMILLE_MAX_RECORDS": kmod.MAX_RECORDS,
    "PERMILLE_RING_RECORDS": kmod.RING_RECORDS,
    "PERMILLE_IOC_INFO": kmod.IOC_INFO,
    "PERMILLE_IOC_SETUP": kmod.IOC_SETUP,
    "PERMILLE_IOC_START": kmod.IOC_START,
    "PERMILLE_IOC_STOP": kmod.IOC_STOP,
    "PERMILLE_IOC_SESSION": kmod.IOC_SESSION,
    "PERMILLE_IOC_CORE": kmod.IOC_CORE,
    "PERMILLE_IOC_ADD_PROCESS": kmod.IOC_ADD_PROCESS,
    "PERMILLE_MMAP_TRACE(3)": kmod.mmap_trace(3),
    "PERMILLE_MMAP_SWITCHES(3)": kmod.mmap_switches(3),
    "PERMILLE_ALL_FLAGS": sum(kmod.Flags),
    **{f"PERMILLE_{flag.name}": flag.value for flag in kmod.Flags},
    **{f"PERMILLE_BACKEND_{unit.name}": unit.value for unit in kmod.Unit},
    **{f"PERMILLE_REFUSED_{refusal.name}": refusal.value for refusal in kmod.Refusal},
    **{f"PERMILLE_END_{end.name}": end.value for end in kmod.End},
    **{f"PERMILLE_{state.name}": state.value for state in kmod.State},
}


@pytest.fixture(scope="module")
def in_c(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """What a C compiler makes of every name: sizes of structs, offsets of their fields, numbers."""
    wanted = {f"sizeof({name})": f"sizeof(struct {name})" for name in STRUCTURES}
    for name, structure in STRUCTURES.items():
        wanted |= {f"{name}.{field}": f"offsetof(struct {name}, {field})" for field in fields(structure)}
    wanted |= {name: name for name in NUMBERS}
    folder = tmp_path_factory.mktemp("layout")
    prints = "\n".join(
        f'printf("%s %llu\\n", "{name}", (unsigned long long)({text}));' for name, text in wanted.items()
    )
    source = f"#include <stddef.h>\n#include <stdio.h>\n#include <permille.h>\nint main(void)\n{{\n{prints}\n}}\n"
    (folder / "layout.c").write_text(source)
    subprocess.run(["gcc", f"-I{HEADERS}", "-o", folder / "layout", folder / "layout.c"], check=True)
    told = subprocess.run([folder / "layout"], capture_output=True, text=True, check=True).stdout
    return {name: int(value) for name, value in (line.rsplit(" ", 1) for line in told.splitlines())}


def fields(structure: type[ctypes.Structure]) -> list[str]:
    return [field[0] for field in structure._fields_]


@pytest.mark.parametrize("name", STRUCTURES)
def test_every_field_is_where_the_header_has_it(in_c: dict[str, int], name: str) -> None:
    structure = STRUCTURES[name]
    assert ctypes.sizeof(structure) == in_c[f"sizeof({name})"]
    for field in fields(structure):
        assert getattr(structure, field).offset == in_c[f"{name}.{field}"], field


@pytest.mark.parametrize("name", NUMBERS)
def test_every_number_is_the_headers(in_c: dict[str, int], name: str) -> None:
    assert NUMBERS[name] == in_c[name]


def test_no_field_flag_or_refusal_of_the_header_is_left_out() -> None:
    header = (HEADERS / "permille.h").read_text()
    for name, structure in STRUCTURES.items():
        (body,) = re.findall(rf"struct {name} \{{(.*?)\n\}};", header, re.DOTALL)
        declared = re.findall(r"__u(?:32|64)\s+([^;]+);", body)
        names = [re.sub(r"\[.*\]", "", field.strip()) for line in declared for field in line.split(",")]
        assert names == fields(structure)
    assert len(re.findall(r"^\tPERMILLE_REFUSED_", header, re.MULTILINE)) == len(kmod.Refusal)
    assert len(re.findall(r"^\tPERMILLE_END_", header, re.MULTILINE)) == len(kmod.End)
