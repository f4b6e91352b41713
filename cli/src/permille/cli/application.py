"""The command `permille`."""

from __future__ import annotations

import difflib
import importlib
import json
import re
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer
from permille.cli import exit_codes
from permille.cli.interruption import interruptible
from permille.cli.rendering.error_text import error_json, error_text
from permille.cli.standard_streams import guard_standard_streams, nobody_reads
from permille.mesh.errors import FailedPrecondition, Internal, InvalidArgument, PermilleError, ResourceExhausted
from permille.mesh.exhausted import exhausted
from permille.mesh.no_room import is_no_room
from typer.core import TyperGroup

COMMANDS = {
    "up": "permille.cli.commands.up",
    "run": "permille.cli.commands.run",
    "trace": "permille.cli.commands.trace",
    "sessions": "permille.cli.commands.sessions",
    "report": "permille.cli.commands.report",
    "diff": "permille.cli.commands.diff",
    "coverage": "permille.cli.commands.coverage",
    "query": "permille.cli.commands.query",
    "export": "permille.cli.commands.export",
    "delete": "permille.cli.commands.delete",
    "import": "permille.cli.commands.import_session",
    "upload-binary": "permille.cli.commands.upload_binary",
    "pt": "permille.cli.commands.pt",
    "doctor": "permille.cli.commands.doctor",
    "selftest": "permille.cli.commands.selftest",
    "certs": "permille.cli.commands.certs",
    "support-bundle": "permille.cli.commands.support_bundle",
}


# What stands for bytes that are no UTF-8 (PEP 383).
_SURROGATE = re.compile("[\udc80-\udcff]")


class Commands(TyperGroup):
    """Loads a command when it is named; the beginning of a name is enough where it is unique."""

    def list_commands(self, ctx: Any) -> list[str]:
        """In the order of use."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name; None for an unknown one."""
        if cmd_name not in COMMANDS:
            return None
        loaded = typer.main.get_command(importlib.import_module(COMMANDS[cmd_name]).app)
        interruptible()
        loaded.name = cmd_name
        return loaded

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Raises `InvalidArgument` for a word that is the beginning of no command, or of several."""
        return super().resolve_command(ctx, [_command_name(args[0]), *args[1:]])

    def invoke(self, ctx: Any) -> Any:
        """Raises `typer.BadParameter` for a value that an option cannot have, with the value."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            _name_value(error)
            raise


def _name_value(error: typer.BadParameter) -> None:
    """Pydantic, which reads values, calls each of them "Input"."""
    errors = getattr(error.__cause__, "errors", None)
    if errors is not None and error.message.startswith("Input "):
        value = str(errors()[0]["input"])[:100]
        error.message = f"{value!r}{error.message.removeprefix('Input')}"


def _command_name(word: str) -> str:
    meant = [word] if word in COMMANDS else [name for name in COMMANDS if name.startswith(word)]
    if len(meant) == 1:
        return meant[0]
    near = meant or difflib.get_close_matches(word, COMMANDS, n=3, cutoff=0.5)
    raise InvalidArgument(
        f"there is no command {word!r}",
        reason="UNKNOWN_COMMAND",
        help=f"did you mean {' or '.join(near)}?" if near else "`permille --help` lists all",
        metadata={"command": word},
    )


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="[bold]Exit codes[/bold]\n\n" + exit_codes.table(),
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415 - reads files

        typer.echo(f"permille {version('permille-cli')}")
        raise typer.Exit


@app.callback()
def permille(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """What a running service did, function by function, during the half second you choose.

    [bold]permille up[/bold] starts everything on this machine.
    [bold]permille run -- CMD[/bold] starts a program ready to be recorded,
    [bold]permille trace --pid PID --for 500ms[/bold] records it,
    [bold]permille report[/bold] shows what it did.

    Settings come from options, then from PERMILLE_* variables, then from the configuration file.
    """


def run() -> None:
    """Runs one command; every error ends as a message with a way out and an exit code."""
    guard_standard_streams()
    try:
        app(prog_name="permille")
    except PermilleError as error:
        _end(error)
    except SystemExit as end:
        # So Rich and Typer, which write help, end where nobody reads it.
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        nobody_reads()
        raise SystemExit(exit_codes.OK) from None
    except OSError as error:
        _end(_of_folders(error) or exhausted("permille", error) or _defect(error))
    except UnicodeEncodeError as error:
        _end(_no_unicode(error.object) if _SURROGATE.search(error.object) else _defect(error))
    except Exception as error:
        _end(exhausted("permille", error) or _defect(error))


def _end(error: PermilleError) -> None:
    # Of two errors the first is told.
    try:
        sys.stdout.flush()
    except PermilleError:
        pass
    except BrokenPipeError:
        nobody_reads()
    if "--json" in sys.argv:
        sys.stderr.write(json.dumps(error_json(error), ensure_ascii=False) + "\n")
    else:
        sys.stderr.write(error_text(error) + "\n")
    raise SystemExit(exit_codes.exit_code(error)) from None


def _of_folders(error: OSError) -> PermilleError | None:
    if isinstance(error, FileNotFoundError) and _folder_is_gone():
        return _no_folder()
    try:
        temporary = tempfile.gettempdir()
    except FileNotFoundError as none:
        return FailedPrecondition(
            f"temporary files cannot be written anywhere: {none.strerror}",
            reason="NO_TEMPORARY_FOLDER",
            help="make room, or name another folder for them with TMPDIR",
        )
    return _no_room(error, temporary) if is_no_room(error) else None


def _no_room(error: OSError, temporary: str) -> ResourceExhausted:
    place = f" for {error.filename}" if error.filename else f" in {temporary}"
    return ResourceExhausted(
        f"there is no room{place}: {error.strerror}",
        reason="DISK_FULL",
        help="make room, or name another folder for temporary files with TMPDIR",
    )


def _no_unicode(text: str) -> InvalidArgument:
    names = any(argument.partition("=")[0] in ("--name", "-n") for argument in sys.argv)
    return InvalidArgument(
        f"{text[:100]!r} is no UTF-8",
        reason="NOT_UTF8",
        help="write it in UTF-8" + ("; a process that is not called so has a number, for --pid" if names else ""),
    )


def _folder_is_gone() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def _no_folder() -> FailedPrecondition:
    return FailedPrecondition(
        "the present folder has been removed: what is named in relation to it cannot be found",
        reason="FOLDER_REMOVED",
        help="change to another folder (`cd`), or name files and folders from / on",
    )


def _defect(error: Exception) -> Internal:
    try:
        with tempfile.NamedTemporaryFile("w", prefix="permille-defect-", suffix=".txt", delete=False) as file:
            traceback.print_exception(error, file=file)
        account = str(Path(file.name))
    except OSError:
        traceback.print_exception(error)
        account = "what stands above"
    return Internal(
        f"permille met an unexpected error: {type(error).__name__}: {error}",
        reason="UNEXPECTED",
        help=f"report it with {account} and `permille support-bundle`",
    )
