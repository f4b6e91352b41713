"""`permille selftest --hardware`: what it needs, and its run as far as a machine without Intel PT goes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from permille.cli.diagnosis.hardware_selftest import (
    LOADED,
    HardwareCheck,
    HardwareSelftest,
    build,
    missing,
    parse,
    require,
    source_tree,
)
from permille.cli.diagnosis.machine import intel_pt_check
from permille.mesh.errors import FailedPrecondition, NotFound

from .conftest import permille_alone

KMOD = Path(__file__).parents[2] / "kmod"


def test_the_source_is_found_beside_the_command_or_where_it_is_named(tmp_path: Path) -> None:
    assert source_tree(None) == KMOD
    assert source_tree(KMOD) == KMOD
    with pytest.raises(NotFound, match=str(tmp_path)) as raised:
        source_tree(tmp_path)
    assert "--kmod FOLDER" in raised.value.help


def test_the_source_that_dkms_has_is_enough_to_build_the_test(tmp_path: Path) -> None:
    version = subprocess.run([KMOD / "package" / "source", tmp_path], capture_output=True, text=True, check=True).stdout
    folder = source_tree(tmp_path / f"permille-{version.strip()}")
    build(folder, ["selftest-hardware"])
    assert os.access(folder / "build" / "selftest-hardware", os.X_OK)


def test_everything_that_is_missing_is_told_at_once() -> None:
    assert any("only root" in why for why in missing(1000))
    assert not any("only root" in why for why in missing(0))


@pytest.mark.skipif(intel_pt_check().available, reason="this machine has Intel PT")
def test_a_machine_without_intel_pt_is_told_so() -> None:
    with pytest.raises(FailedPrecondition, match=r"on this machine, because this processor .* has no Intel PT"):
        require(os.geteuid())
    ended = permille_alone("selftest", "--hardware")
    assert ended.returncode == 4 and "no Intel PT" in ended.stderr
    assert permille_alone("selftest").returncode == 2


@pytest.mark.skipif(LOADED.exists(), reason="the module is loaded here")
def test_without_a_module_that_loads_nothing_is_tested(tmp_path: Path) -> None:
    build(KMOD, ["selftest-hardware"])
    (tmp_path / "Makefile").write_text(
        f"module:\nselftest-hardware:\n\tmkdir build && cp {KMOD}/build/selftest-hardware build\n"
    )
    test = HardwareSelftest(tmp_path)
    (check,) = test.checks()
    assert [file.name for file in tmp_path.iterdir()] == ["Makefile"], "the source is left as it is"
    assert check.result == "not possible" and "the module does not load" in check.text
    assert test.exit_code == 2


def test_what_cannot_be_built_is_told_in_the_words_of_make(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("module:\n\t@echo no kernel headers >&2; exit 1\n")
    with pytest.raises(FailedPrecondition, match="no kernel headers"):
        build(tmp_path, ["module"])


def test_each_line_is_a_result_or_belongs_to_the_one_behind_it() -> None:
    lines = (
        "        hardware.c:12: 3 of 5\n",
        "FAILED  a full buffer stops the core\n",
        "ok      the module drives this processor\n",
        "-       suspend: not possible here, because it is not asked for\n",
    )
    assert list(map(parse, lines)) == [
        HardwareCheck("", "hardware.c:12: 3 of 5"),
        HardwareCheck("failed", "a full buffer stops the core"),
        HardwareCheck("ok", "the module drives this processor"),
        HardwareCheck("not possible", "suspend: not possible here, because it is not asked for"),
    ]
