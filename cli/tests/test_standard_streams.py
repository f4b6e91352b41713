"""Standard output that takes nothing, for every command: an error with a way out and a code, and no defect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from .conftest import PERMILLE, Mesh, plain_environment
from .test_pt import ROUND

COMMANDS = [["--help"], ["--version"], ["doctor", "--json"]]
LAYERS = [["pt", "stat"], ["pt", "dump"], ["pt", "dump", "--json"]]


@pytest.fixture(params=COMMANDS + LAYERS, ids=" ".join)
def words(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A command that says something and needs no mesh."""
    command: list[str] = request.param
    if command not in LAYERS:
        return command
    file = tmp_path_factory.mktemp("recording") / "trace.pt"
    file.write_bytes(ROUND)
    return [*command, str(file)]


def permille_into(
    output: str,
    words: list[str],
    temporary: Path,
    environment: Mapping[str, str] = MappingProxyType({}),
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """A command with its streams redirected as a shell says it."""
    command = ["sh", "-c", f'exec "$@" {output}', "sh", sys.executable, str(PERMILLE), *words]
    own = {"TMPDIR": str(temporary), "PERMILLE_STATE_DIR": str(temporary / "state")}
    variables = {**plain_environment(), **own, **environment}
    options = {"stderr": subprocess.PIPE, "text": True, "timeout": 60, **options}
    done = subprocess.run(command, env=variables, check=False, **options)
    assert "Traceback" not in done.stderr
    assert list(temporary.glob("permille-defect-*")) == []
    return done


def into_nobody(words: list[str], temporary: Path) -> tuple[int, str]:
    """Exit code and standard error, where the reader of standard output is gone."""
    reader, writer = os.pipe()
    os.close(reader)
    done = permille_into("", words, temporary, stdout=writer)
    os.close(writer)
    return done.returncode, done.stderr


def told(words: list[str], done: subprocess.CompletedProcess[str]) -> str:
    if "--json" not in words:
        assert "what to do: " in done.stderr
        return done.stderr.partition("reason: ")[2].strip()
    error = json.loads(done.stderr.splitlines()[-1])["error"]
    assert error["message"].startswith("cannot write standard output: ")
    assert error["help"]
    return str(error["reason"])


def test_a_full_disk_is_no_defect(words: list[str], tmp_path: Path) -> None:
    done = permille_into(">/dev/full", words, tmp_path)
    assert (done.returncode, told(words, done)) == (8, "DISK_FULL")


def test_a_closed_output_is_told(words: list[str], tmp_path: Path) -> None:
    done = permille_into(">&-", words, tmp_path)
    assert (done.returncode, told(words, done)) == (4, "OUTPUT_FAILED")


@pytest.mark.parametrize("help_of", [[], ["pt"], ["pt", "stat"]], ids=" ".join)
def test_help_that_nobody_reads_to_its_end_is_no_defect(tmp_path: Path, help_of: list[str]) -> None:
    assert into_nobody([*help_of, "--help"], tmp_path) == (0, "")


def test_words_that_nobody_reads_are_no_defect(words: list[str], tmp_path: Path) -> None:
    assert into_nobody(words, tmp_path)[0] == 0


@pytest.mark.parametrize("output", ["2>/dev/full", "2>&-"])
def test_words_beside_the_answer_that_find_no_room_do_not_hinder_it(tmp_path: Path, output: str) -> None:
    file = tmp_path / "trace.pt"
    file.write_bytes(ROUND)
    # It warns that no instruction can be decoded.
    assert permille_into(f"{output} >/dev/null", ["pt", "stat", str(file)], tmp_path).returncode == 0
    assert permille_into(output, ["pt", "stat", str(tmp_path / "none")], tmp_path).returncode == 3


@pytest.mark.parametrize(("words", "code"), [(["nonsense"], 2), (["trace", "--nonsense"], 2), (["sessions"], 6)])
def test_an_error_that_nobody_reads_has_its_code(tmp_path: Path, words: list[str], code: int) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = permille_into("2>&1", words, tmp_path, stdout=writer)
    os.close(writer)
    assert done.returncode == code


@pytest.mark.parametrize("words", [["query", "-"], ["delete", "latest"]], ids=" ".join)
def test_a_closed_input_is_empty(mesh: Mesh, session: str, tmp_path: Path, words: list[str]) -> None:
    done = permille_into("<&-", [*words, "--state-dir", str(mesh.state)], tmp_path)
    assert done.returncode == 2, done.stderr


@pytest.mark.parametrize("words", [["query", "SELECT '\udcff'"], ["trace", "--name", "\udcff"], ["query", "-"]])
def test_what_is_no_utf_8_is_told(mesh: Mesh, tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "sql").write_bytes(b"SELECT '\xff'")
    words = [*words, "--json", "--state-dir", str(mesh.state)]
    environment = {"PYTHONIOENCODING": "utf-8:strict"}
    done = permille_into(f"<{tmp_path}/sql", words, tmp_path, environment=environment)
    error = json.loads(done.stderr)["error"]
    assert (done.returncode, error["reason"]) == (2, "NOT_UTF8")
    assert ("--pid" in error["help"]) == ("--name" in words)


@pytest.mark.parametrize("sql", ["SELECT 'ü名' AS text", "-"])
def test_a_query_is_read_as_utf_8_where_the_locale_has_none(mesh: Mesh, tmp_path: Path, sql: str) -> None:
    (tmp_path / "sql").write_text("SELECT 'ü名' AS text")
    environment = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ":strict"}
    words = ["query", sql, "--state-dir", str(mesh.state)]
    done = permille_into(f"<{tmp_path}/sql", words, tmp_path, environment=environment, stdout=subprocess.PIPE)
    assert done.stdout.split() == ["text", "\\xfc\\u540d"], done.stderr
    words, pipe = [*words, "--json"], subprocess.PIPE
    done = permille_into(f"<{tmp_path}/sql", words, tmp_path, environment=environment, stdout=pipe, encoding="utf-8")
    assert json.loads(done.stdout)["rows"] == [{"text": "ü名"}]


def test_what_an_encoding_does_not_have_is_written_out(tmp_path: Path) -> None:
    file = os.fsencode(tmp_path) + b"/trace\xff.pt"
    Path(os.fsdecode(file)).write_bytes(ROUND)
    words = ["pt", "stat", os.fsdecode(file), "--json"]
    environment = {"PYTHONIOENCODING": "utf-8:strict"}
    done = permille_into("2>/dev/null", words, tmp_path, stdout=subprocess.PIPE, environment=environment)
    assert done.returncode == 0
    # As in errors: half a character, which Python alone takes, is nothing that JSON has.
    assert json.loads(done.stdout)["file"] == f"{tmp_path}/trace\\udcff.pt"
    done = permille_into("", ["trace", "--help"], tmp_path, environment={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0


def test_an_answer_of_the_mesh_that_finds_no_room(mesh: Mesh, tmp_path: Path) -> None:
    for words in (["sessions", "--json"], ["query", "SELECT 1"]):
        done = permille_into(">/dev/full", [*words, "--state-dir", str(mesh.state)], tmp_path)
        assert (done.returncode, told(words, done)) == (8, "DISK_FULL")
