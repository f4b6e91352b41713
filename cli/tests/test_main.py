"""The command as a whole: help, usage errors, completion, exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from permille.cli import exit_codes
from permille.cli.application import COMMANDS
from permille.mesh.errors import Code, error_of

from .conftest import PERMILLE, permille_alone, plain_environment


def test_the_help_lists_every_command_and_every_exit_code() -> None:
    text = permille_alone("--help", COLUMNS="120").stdout
    for name in COMMANDS:
        assert f" {name} " in text
    for code, meaning in exit_codes.MEANINGS.items():
        assert f"{code} {meaning}"[:60] in text


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str) -> None:
    done = permille_alone(name, "--help", COLUMNS="120")
    assert done.returncode == 0
    assert "Usage: permille" in done.stdout
    assert "--json" in done.stdout or name == "certs"


def test_the_beginning_of_a_name_is_enough_where_it_is_unique() -> None:
    assert "Usage: permille upload-binary" in permille_alone("upload", "--help", COLUMNS="120").stdout
    assert permille_alone("de", "--help").returncode == 0
    ambiguous = permille_alone("s", "--help")
    assert (ambiguous.returncode, "sessions or selftest or support-bundle" in ambiguous.stderr) == (2, True)
    assert "did you mean report" in permille_alone("reprot").stderr


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--max-calls", "5"], "--max-calls says nothing without --html"),
        (["--html", "-", "--json"], "--html - and --json both write standard output"),
    ],
)
def test_options_of_a_report_of_which_one_would_do_nothing_are_refused(options: list[str], told: str) -> None:
    done = permille_alone("report", *options)
    assert (done.returncode, told in done.stderr) == (2, True)


LARGE = str(1 << 64)


@pytest.mark.parametrize(
    "arguments",
    [
        ["sessions", "--nonsense"],
        ["export"],
        ["query"],
        ["trace", "--pid", "x"],
        ["query", "SELECT 1", "--max-rows", LARGE],
        ["export", "--format", "folded", "--max-calls", LARGE],
        ["report", "--html", "x", "--max-calls", LARGE],
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: list[str]) -> None:
    done = permille_alone(*arguments)
    assert done.returncode == 2
    assert "Usage" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["pt", "stat", "x", "-s", "0", "-s", "-1"], "'-1' should be greater than or equal to 0"),
        (["pt", "stat", "x", "-s", "many"], "'many' should be a valid integer"),
        (["pt", "calls", "x", "--depth", "-2"], "'-2' should be greater than or equal to 0"),
        (["sessions", "--limit", "\x1b[31m"], "'\\x1b[31m' should be a valid integer"),
    ],
)
def test_a_value_that_an_option_cannot_have_is_named(arguments: list[str], told: str) -> None:
    done = permille_alone(*arguments, COLUMNS="160")
    assert (done.returncode, told in done.stderr) == (2, True), done.stderr


def test_a_wrong_setting_names_the_nearest() -> None:
    done = permille_alone("sessions", PERMILLE_STATE_DIRR="/x")
    assert done.returncode == 2
    assert "PERMILLE_STATE_DIR" in done.stderr


def test_a_present_folder_that_was_removed_is_told(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    done = subprocess.run(
        ["sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh", PERMILLE, "run", "--", "./program"],
        cwd=gone,
        env={**plain_environment(), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 4
    assert "FOLDER_REMOVED" in done.stderr
    assert list(tmp_path.glob("permille-defect-*")) == []


def test_where_no_temporary_file_can_be_written_that_is_told(tmp_path: Path) -> None:
    (tmp_path / "trace.pt").write_bytes(bytes.fromhex("0282" * 8))
    # Of no file a single byte.
    words = ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", str(PERMILLE), "import", str(tmp_path / "trace.pt")]
    done = subprocess.run(words, env=plain_environment(), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 4, done.stderr
    assert "NO_TEMPORARY_FOLDER" in done.stderr
    assert "Traceback" not in done.stderr


FAILING = """
import errno
from permille.cli import application
def app(**_):
    raise ERROR
application.app = app
application.run()
"""


@pytest.mark.parametrize("error", ["MemoryError()", "OSError(errno.EMFILE, 'x')"])
def test_what_the_machine_has_no_more_of_is_no_defect(tmp_path: Path, error: str) -> None:
    program = FAILING.replace("ERROR", error)
    environment = {**plain_environment(), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, "MACHINE_EXHAUSTED" in done.stderr) == (8, True), done.stderr
    assert list(tmp_path.iterdir()) == []


def test_every_error_family_has_an_exit_code_of_the_documented() -> None:
    for code in Code:
        assert exit_codes.exit_code(error_of(int(code), "x", reason="X")) in exit_codes.MEANINGS
    assert exit_codes.exit_code(error_of(int(Code.NOT_FOUND), "x", reason="X")) == 3


def test_the_shell_completes_commands_and_choices() -> None:
    def completed(words: str, position: str) -> str:
        return permille_alone(_PERMILLE_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=position).stdout

    assert set(COMMANDS) <= set(completed("permille ", "1").split())
    assert "speedscope" in completed("permille export --format s", "3")


INTERRUPTED = """
import os, signal, sys
loaded = sys.argv.pop(1)
class Interruption:
    def find_spec(self, name, path=None, target=None):
        if name == loaded:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interruption())
from permille.cli.main import main
main()
"""


@pytest.mark.parametrize("loaded", ["typer", "permille.cli.application", "permille.cli.commands.pt", "permille.ptcore"])
def test_an_interruption_while_it_is_loaded_is_no_traceback(tmp_path: Path, loaded: str) -> None:
    file = tmp_path / "trace.pt"
    file.write_bytes(bytes.fromhex("0282" * 8))
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, loaded, "pt", "dump", str(file)],
        env=plain_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (130, "")


def test_the_version_is_the_package_version() -> None:
    from importlib.metadata import version

    assert permille_alone("--version").stdout == f"permille {version('permille-cli')}\n"
