"""The command line of a service: a flag for each setting, made from the configuration class."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence
from pathlib import Path

from permille.mesh.errors import InvalidArgument
from pydantic import BaseModel


def parse(
    program: str, config: type[BaseModel], argv: Sequence[str] | None = None
) -> tuple[Path | None, dict[str, object]]:
    """The `--config` file and the settings given as flags, nested as the configuration is.

    `--help` prints and exits. Raises `InvalidArgument` for an unknown flag, with the nearest known one.
    """
    parser = argparse.ArgumentParser(
        prog=program,
        allow_abbrev=False,
        description="Settings come from flags, then PERMILLE_* variables, then the configuration file.",
    )
    parser.add_argument("--config", type=Path, help="TOML file with settings")
    paths: dict[str, tuple[str, ...]] = {}
    _add(parser, config, (), paths)
    known, unknown = parser.parse_known_args(argv)
    if unknown:
        raise _unknown(unknown[0], ["--config", *(_flag(path) for path in paths.values())])
    given = vars(known)
    overrides: dict[str, object] = {}
    for name, path in paths.items():
        if given[name] is None:
            continue
        level = overrides
        for part in path[:-1]:
            inner = level.setdefault(part, {})
            if isinstance(inner, dict):
                level = inner
        level[path[-1]] = given[name]
    return given["config"], overrides


def _add(
    parser: argparse.ArgumentParser, model: type[BaseModel], above: tuple[str, ...], paths: dict[str, tuple[str, ...]]
) -> None:
    for name, field in model.model_fields.items():
        path = (*above, name)
        nested = field.annotation
        if isinstance(nested, type) and issubclass(nested, BaseModel):
            _add(parser, nested, path, paths)
            continue
        destination = "__".join(path)
        paths[destination] = path
        text = (field.description or "").replace("%", "%%")
        parser.add_argument(_flag(path), dest=destination, metavar=name.upper(), help=text)


def _flag(path: tuple[str, ...]) -> str:
    return "--" + "-".join(path).replace("_", "-")


def _unknown(given: str, flags: list[str]) -> InvalidArgument:
    name = given.partition("=")[0]
    near = difflib.get_close_matches(name, flags, n=1, cutoff=0.5)
    return InvalidArgument(
        f"unknown flag {name!r}",
        reason="UNKNOWN_FLAG",
        help=f"did you mean {near[0]}? --help lists all" if near else "--help lists all flags",
        metadata={"flag": name},
    )
