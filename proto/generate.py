"""Generates `permille.api` from the contracts: a hatchling build hook, and a command (`python proto/generate.py`).

The contracts are packages `permille.<service>.v1`, as buf wants them; the Python stubs move below `permille.api`
because `permille.<service>` is the service's own code.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import grpc_tools
from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HERE = Path(__file__).resolve().parent
TARGET = HERE / "src" / "permille" / "api"
STUB_IMPORT = re.compile(r"^(\s*(?:from|import) )permille\.", re.MULTILINE)


def generate() -> None:
    """Writes proto/src/permille/api; raises CalledProcessError with protoc's own message on a bad contract."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch)
        protoc(sorted(str(path.relative_to(HERE)) for path in HERE.glob("permille/**/*.proto")), out)
        shutil.rmtree(TARGET, ignore_errors=True)
        for stub in sorted((out / "permille").rglob("*.py*")):
            place(stub, TARGET / stub.relative_to(out / "permille"))
    (TARGET / "py.typed").touch()


def protoc(contracts: list[str], out: Path) -> None:
    outputs = [f"--{kind}_out={out}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")]
    well_known_types = Path(grpc_tools.__file__).parent / "_proto"
    # protoc finds its mypy plugins beside the interpreter that runs the build, which need not be on PATH.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", "-I.", f"-I{well_known_types}", *outputs, *contracts],
        cwd=HERE,
        check=True,
        env={**os.environ, "PATH": path},
    )


def place(stub: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(STUB_IMPORT.sub(r"\1permille.api.", stub.read_text()))


class GenerateStubs(BuildHookInterface[BuilderConfig]):
    """Runs before every build, also an editable one, so that installing the package is enough."""

    def initialize(self, version: str, build_data: dict[str, object]) -> None:
        generate()


if __name__ == "__main__":
    generate()
