"""What every command takes: which mesh, and whether a person or a program reads the answer."""

from __future__ import annotations

import inspect
import json
import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from permille.cli.rendering.table_layout import UNBOUNDED
from permille.cli.rendering.terminal_text import escaped_lines
from permille.cli.standard_streams import nobody_reads
from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from permille.mesh.config import MeshConfig

_PANEL = "Every command"
_SURROGATE = re.compile("[\ud800-\udfff]")

_OPTIONS: dict[str, Any] = {
    "as_json": Annotated[
        bool, typer.Option("--json", help="Print JSON for programs instead of text.", rich_help_panel=_PANEL)
    ],
    "config_file": Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="TOML file with settings; else PERMILLE_CONFIG, ~/.config/permille/permille.toml, /etc/permille.",
            readable=False,
            rich_help_panel=_PANEL,
        ),
    ],
    "state_dir": Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="State folder of the mesh, else PERMILLE_STATE_DIR.", rich_help_panel=_PANEL
        ),
    ],
    "etcd": Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="The mesh's etcd, else PERMILLE_ETCD, else the private one of `permille up`.",
            rich_help_panel=_PANEL,
        ),
    ],
}


@dataclass(frozen=True)
class Invocation:
    """One run of the command."""

    as_json: bool = False
    config_file: Path | None = None
    state_dir: Path | None = None
    etcd: str | None = None

    @cached_property
    def config(self) -> MeshConfig:
        """The settings. Raises `InvalidArgument` and `NotFound` as `permille.mesh.config.load` does."""
        from permille.mesh.config import MeshConfig, load  # noqa: PLC0415 - a sixth of the start, and `pt` needs none

        return load(MeshConfig, file=self.config_file, overrides=self.overrides)

    @property
    def overrides(self) -> dict[str, object]:
        """The settings given as flags."""
        given = {"state_dir": self.state_dir, "etcd": self.etcd}
        return {key: value for key, value in given.items() if value is not None}

    def hint(self, command: str, rest: str) -> str:
        """A line with the command to type next, which finds the same mesh: with the flags that were given now."""
        paths = {"--config": self.config_file, "--state-dir": self.state_dir}
        given = {flag: str(path.absolute()) for flag, path in paths.items() if path is not None}
        if self.etcd is not None:
            given["--etcd"] = self.etcd
        flags = "".join(f" {flag} {shlex.quote(value)}" for flag, value in given.items())
        return f"next: permille {command}{flags} {rest}"

    @cached_property
    def console(self) -> Console:
        """Standard output. A pipe gets lines as wide as they need to be."""
        return console_for(sys.stdout.isatty())

    @cached_property
    def notes(self) -> Console:
        """Standard error: progress, hints and warnings."""
        return _Lines(stderr=True, highlight=False, soft_wrap=True)

    def print_json(self, value: object) -> None:
        """One JSON document on standard output."""
        text = json.dumps(value, ensure_ascii=False, indent=2)
        # What is no UTF-8, as in names of files, is written out as in text: JSON has nothing for half a character.
        sys.stdout.write(_SURROGATE.sub(lambda found: f"\\\\u{ord(found[0]):04x}", text) + "\n")
        sys.stdout.flush()


class _Lines(Console):
    def render_str(self, text: str, **options: Any) -> Text:
        """Without what would steer the terminal: rich's own styles come behind it."""
        return super().render_str(escaped_lines(text), **options)

    def on_broken_pipe(self) -> None:
        """Leaves the error to `command`, as all else that writes does; rich itself would end with code 1."""
        raise  # noqa: PLE0704 - called while the error is handled


def console_for(terminal: bool) -> Console:
    """A console on standard output. Lines of text are left to the terminal, so that what it folds is copied whole."""
    return _Lines(highlight=False, soft_wrap=True, width=None if terminal else UNBOUNDED)


def command(function: Callable[..., None]) -> Callable[..., None]:
    """A function of an `Invocation` and its own options as a command that also has the options of every command."""
    hints = get_type_hints(function, include_extras=True)
    own = list(inspect.signature(function).parameters.values())[1:]
    parameters = [
        parameter.replace(annotation=hints[parameter.name], kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own
    ]
    parameters += [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=annotation,
            default=False if name == "as_json" else None,
        )
        for name, annotation in _OPTIONS.items()
    ]

    @wraps(function)
    def run(**given: Any) -> None:
        common = {name: given.pop(name) for name in _OPTIONS}
        try:
            function(Invocation(**common), **given)
            sys.stdout.flush()
        except BrokenPipeError:
            # Whoever read the output has seen enough.
            nobody_reads()

    del run.__wrapped__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
