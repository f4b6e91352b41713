"""The options of every command that reads a recording made elsewhere."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from permille.cli.capture_file import Given

_PANEL = "What the recording does not say"

_OPTIONS: dict[str, Any] = {
    "images": Annotated[
        list[str] | None,
        typer.Option(
            "--image",
            "-i",
            metavar="FILE:OFFSET:SIZE:ADDRESS",
            help="SIZE bytes of FILE from OFFSET stood at ADDRESS: code for packets alone. Numbers are decimal or begin"
            " with 0x; FILE:OFFSET:ADDRESS and FILE:ADDRESS mean the rest of the file. An ELF file gives names too."
            " May be repeated.",
            rich_help_panel=_PANEL,
        ),
    ],
    "cpu": Annotated[
        str | None,
        typer.Option(
            metavar="F/M/S",
            help="Family, model and stepping of the processor that recorded, as /proc/cpuinfo has them: 6/94/3."
            " Its errata are allowed for.",
            rich_help_panel=_PANEL,
        ),
    ],
    "timing": Annotated[
        str | None,
        typer.Option(
            metavar="MTC,NUM/DEN,RATIO",
            help="MTC frequency, TSC ticks per crystal tick (CPUID leaf 15H, EBX/EAX), nominal core to bus ratio:"
            " 3,168/2,20.",
            rich_help_panel=_PANEL,
        ),
    ],
    "symbols": Annotated[
        list[Path] | None,
        typer.Option(
            "--symbols",
            metavar="FOLDER",
            help="Where binaries of the recorded machine are, by build id, path or name; may be repeated.",
            readable=False,
            rich_help_panel=_PANEL,
        ),
    ],
    "sideband": Annotated[
        list[Path] | None,
        typer.Option(
            "--sideband",
            metavar="FILE",
            help="Records of perf that belong to packets alone: mappings, switches; may be repeated.",
            readable=False,
            rich_help_panel=_PANEL,
        ),
    ],
    "vmlinux": Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The kernel that ran, as an ELF file, packed or not.",
            readable=False,
            rich_help_panel=_PANEL,
        ),
    ],
    "kallsyms": Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A copy of its /proc/kallsyms.", readable=False, rich_help_panel=_PANEL),
    ],
    "kcore": Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A copy of its /proc/kcore.", readable=False, rich_help_panel=_PANEL),
    ],
}


def reading(function: Callable[..., None]) -> Callable[..., None]:
    """A function of an `Invocation`, what was `given`, and its own options, as one that takes these options too."""
    hints = get_type_hints(function, include_extras=True)
    own = [
        parameter.replace(annotation=hints[parameter.name])
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name != "given"
    ]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=None)
        for name, annotation in _OPTIONS.items()
    ]

    @wraps(function)
    def run(invocation: Any, **options: Any) -> None:
        said = {name: options.pop(name) for name in _OPTIONS}
        known = {name: value for name, value in said.items() if value is not None}
        function(invocation, given=Given(**known), **options)

    del run.__wrapped__
    run.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in [*own, *added]}
    return run
