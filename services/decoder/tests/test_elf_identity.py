"""Files whose section headers are gone or damaged have the build id that their segments tell."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from permille.decoder.domain.elf_identity import ElfIdentity, identify_elf
from permille.mesh.errors import InvalidArgument

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")

E_SHOFF, E_SHNUM, E_SHSTRNDX = slice(0x28, 0x30), slice(0x3C, 0x3E), slice(0x3E, 0x40)


def built(folder: Path, *options: str) -> Path:
    path = folder / "program"
    options = (*options, "-nostdlib", "-shared", "-Wl,--build-id=0x0123456789abcdef")
    source = "int main(void) { return 0; }\n"
    subprocess.run(["gcc", *options, "-x", "c", "-o", path, "-"], input=source, text=True, check=True)
    return path


def without_headers(data: bytearray) -> None:
    data[E_SHOFF], data[E_SHNUM], data[E_SHSTRNDX] = bytes(8), bytes(2), bytes(2)


def without_their_names(data: bytearray) -> None:
    data[E_SHSTRNDX] = b"\xfe\xfe"


def elsewhere(data: bytearray) -> None:
    data[E_SHOFF] = b"\xfe" * 8


def beyond_any_file(data: bytearray) -> None:
    data[E_SHOFF] = b"\xff" * 7 + b"\x7f"


def scrambled(data: bytearray) -> None:
    table = int.from_bytes(data[E_SHOFF], "little")
    data[table:] = bytes((at * 167 + 13) % 256 for at in range(len(data) - table))


def cut_off(data: bytearray) -> None:
    del data[int.from_bytes(data[E_SHOFF], "little") + 70 :]


@pytest.mark.parametrize(
    "damage", [without_headers, without_their_names, elsewhere, beyond_any_file, scrambled, cut_off]
)
def test_a_file_with_damaged_section_headers_has_its_build_id(
    tmp_path: Path, damage: Callable[[bytearray], None]
) -> None:
    program = built(tmp_path)
    data = bytearray(program.read_bytes())
    damage(data)
    program.write_bytes(data)
    assert identify_elf(program) == ElfIdentity("0123456789abcdef", "")


def test_a_file_of_32_bits_cut_in_its_section_headers_has_its_build_id(tmp_path: Path) -> None:
    program = built(tmp_path, "-m32")
    program.write_bytes(program.read_bytes()[:-50])
    assert identify_elf(program).build_id == "0123456789abcdef"


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"\x7fELF\x02\x01\x01", b"text" * 100, b"\x7fELF" * 100])
def test_what_is_no_elf_file_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(InvalidArgument, match="this is no ELF file that can be read"):
        identify_elf(tmp_path / "file")
