"""The whole diagnosis: the machine by itself, or as its controller sees it where one runs."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from permille.cli.diagnosis.check import Check
from permille.cli.diagnosis.machine import NEEDED, machine_checks
from permille.cli.diagnosis.mesh_state import MeshState, mesh_state
from permille.mesh.config import MeshConfig

_PACKAGES = (
    "permille-cli",
    "permille-mesh",
    "permille-api",
    "permille-allocator",
    "permille-controller",
    "permille-coverage",
    "permille-decoder",
    "grpcio",
    "protobuf",
    "aetcd",
    "pyarrow",
    "deltalake",
    "duckdb",
)


@dataclass(frozen=True)
class Diagnosis:
    """What `permille doctor` says."""

    checks: list[Check]
    mesh: MeshState
    versions: dict[str, str]

    @property
    def can_record(self) -> bool:
        """Whether nothing that is needed is missing."""
        return all(check.available for check in self.checks if check.needed)


async def diagnose(config: MeshConfig) -> Diagnosis:
    """Looks at everything."""
    mesh = await mesh_state(config)
    checks = {check.name: check for check in machine_checks(config)}
    if mesh.node is not None:
        # Who records knows best: it has tried.
        for capability in mesh.node.capabilities:
            checks[capability.name] = Check(
                capability.name,
                capability.available,
                capability.detail,
                capability.fix,
                capability.name in NEEDED,
            )
    return Diagnosis(list(checks.values()), mesh, versions())


def versions() -> dict[str, str]:
    """Of permille's parts, of what they stand on, and of this machine."""
    found = {"python": platform.python_version(), "kernel": platform.release()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def diagnosis_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """For programs."""
    mesh = diagnosis.mesh
    node = mesh.node
    return {
        "can_record": diagnosis.can_record,
        "checks": [asdict(check) for check in diagnosis.checks],
        "mesh": {
            "up_pid": mesh.up_pid,
            "services": [asdict(service) for service in mesh.services],
            "error": mesh.error.message if mesh.error else "",
        },
        "recordable": [
            {
                "pid": process.pid,
                "name": process.name,
                "command_line": list(process.command_line),
                "threads": process.threads,
                "session": process.session,
            }
            for process in (node.processes if node else ())
        ],
        "trace_budget_bytes": node.trace_budget_bytes if node else 0,
        "versions": diagnosis.versions,
    }
