"""`permille selftest --hardware`: what it needs, and its run as far as a machine without Intel PT goes."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from permille.cli.diagnosis.hardware_selftest import (
    LOADED,
    HardwareCheck,
    HardwareSelftest,
    build,
    counted,
    judged,
    missing,
    parse,
    source_tree,
)
from permille.cli.diagnosis.known_calls import Counted, PrivateMesh
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
def test_a_machine_without_intel_pt_is_told_so_for_each_step() -> None:
    ended = permille_alone("selftest", "--hardware")
    told = [line for line in ended.stdout.splitlines() if "not on this machine, because this processor" in line]
    assert ended.returncode == 4 and len(told) == 4, ended
    assert all(line.startswith("not possible") and "has no Intel PT" in line for line in told)
    assert permille_alone("selftest").returncode == 2


@pytest.mark.skipif(LOADED.exists(), reason="the module is loaded here")
def test_a_module_that_does_not_load_is_said_to_be_none(tmp_path: Path) -> None:
    build(KMOD, ["selftest-hardware"])
    (check,) = HardwareSelftest(KMOD)._module_checks(KMOD)
    assert check.result == "not possible" and "the module does not load" in check.text


@pytest.fixture(scope="module")
def private_mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateMesh]:
    mesh = PrivateMesh(tmp_path_factory.mktemp("private"))
    with mesh.up():
        yield mesh


def test_a_known_program_is_recorded_and_its_calls_are_those_that_are_known(private_mesh: PrivateMesh) -> None:
    build(KMOD, ["selftest-hardware"])
    check = counted(private_mesh, KMOD / "build" / "known-calls", "vpt")
    assert check.result == "ok" and "3 in each" in check.text, check
    assert re.search(r" [1-9]\d{3,} calls in ", check.text)


def test_a_program_that_calls_otherwise_fails_the_check(private_mesh: PrivateMesh, tmp_path: Path) -> None:
    source = (KMOD / "selftest" / "known_calls.c").read_text()
    (tmp_path / "other.c").write_text(source.replace("i < 3;", "i < 4;"))
    subprocess.run(["gcc", "-O2", "-o", tmp_path / "other", tmp_path / "other.c"], check=True)
    check = counted(private_mesh, tmp_path / "other", "vpt")
    assert check.result == "failed" and check.text.startswith("calls of a known program, by vpt and decoded: not "), (
        check
    )


@pytest.mark.skipif(intel_pt_check().available, reason="this machine has Intel PT")
@pytest.mark.parametrize(("backend", "snapshot"), [("kmod", False), ("perf", False), ("perf", True)])
def test_a_back_end_that_is_not_here_is_no_failure(private_mesh: PrivateMesh, backend: str, snapshot: bool) -> None:
    check = counted(private_mesh, KMOD / "build" / "known-calls", backend, snapshot=snapshot)
    assert check.result == "not possible" and "not on this machine, because " in check.text, check


def test_the_check_of_a_snapshot_asks_for_one(private_mesh: PrivateMesh) -> None:
    check = counted(private_mesh, KMOD / "build" / "known-calls", "vpt", snapshot=True)
    assert check.result == "failed" and "SNAPSHOT_UNSUPPORTED" in check.text, check


def test_a_recording_may_begin_and_end_within_a_call() -> None:
    whole = Counted(outer=2000, inner=6000, lost_bytes=0, instructions=100_000)
    assert replace(whole, inner=6000 - 3 - 3).as_known and not replace(whole, inner=6000 - 7).as_known


def test_a_snapshot_has_passed_the_end_of_its_buffer_and_lost_nothing() -> None:
    whole = Counted(outer=2000, inner=6000, lost_bytes=0, instructions=100_000, overwritten=True)
    assert judged("a snapshot", whole, snapshot=True).result == "ok"
    assert "was not passed" in judged("a snapshot", replace(whole, overwritten=False), snapshot=True).text
    assert "losses" in judged("a snapshot", replace(whole, losses=1), snapshot=True).text
    assert judged("a snapshot", replace(whole, inner=5000), snapshot=True).result == "failed"


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
