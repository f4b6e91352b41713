"""The self-test of the kernel module on a processor with Intel PT (kmod/selftest): what it needs, and its run."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from permille.cli.diagnosis.machine import intel_pt_check
from permille.mesh.errors import FailedPrecondition, NotFound

LOADED = Path("/sys/module/permille")
# DKMS keeps a module's source there.
DKMS = Path("/usr/src")
NOTHING_TESTED = 2
_BUILT = shutil.ignore_patterns("build", "*.o", "*.ko", "*.mod", "*.mod.c", ".*.cmd")
_RESULTS = {"ok": "ok", "FAILED": "failed", "-": "not possible"}


@dataclass(frozen=True)
class HardwareCheck:
    """One line of the test: `result` is ok, failed or not possible; "" for what was found behind a failure."""

    result: str
    text: str


def source_tree(named: Path | None) -> Path:
    """The folder `kmod`: the one that is named, that of the source tree that runs, or DKMS's. Raises NotFound."""
    beside = [parent / "kmod" for parent in Path(__file__).resolve().parents]
    candidates = [named] if named is not None else [*beside, *sorted(DKMS.glob("permille-*"), reverse=True)]
    for folder in candidates:
        if (folder / "Kbuild").is_file() and (folder / "selftest" / "hardware.c").is_file():
            return folder
    raise NotFound(
        f"{named} does not hold the source of the kernel module"
        if named is not None
        else "the source of the kernel module is not on this machine",
        reason="NO_MODULE_SOURCE",
        help="name the folder `kmod` of permille's source: permille selftest --hardware --kmod FOLDER",
    )


def missing(uid: int) -> list[str]:
    """Why this machine cannot run the test; nothing where it can."""
    why = []
    processor = intel_pt_check()
    if not processor.available and "perf" not in processor.detail:
        why.append(processor.detail)
    if uid != 0:
        why.append("it has to load a kernel module, which only root can")
    why += [f"{program} is not installed" for program in ("make", "gcc") if shutil.which(program) is None]
    return why


def require(uid: int) -> None:
    """Raises FailedPrecondition that tells all that is missing."""
    why = missing(uid)
    if why:
        raise FailedPrecondition(
            f"the hardware cannot be tested on this machine, because {'; and '.join(why)}",
            reason="SELFTEST_NOT_POSSIBLE",
            help="run it as root on a machine whose /proc/cpuinfo has the flag intel_pt",
        )


def build(folder: Path, targets: Sequence[str]) -> None:
    """Raises FailedPrecondition with what make says, for example which kernel headers are missing."""
    made = subprocess.run(["make", "-s", "-C", folder, *targets], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise FailedPrecondition(
            f"the kernel module's test cannot be built: {made.stderr.strip()[-800:]}",
            reason="SELFTEST_NOT_BUILT",
            help=f"see `make -C {folder} {' '.join(targets)}`",
        )


class HardwareSelftest:
    """One run. `exit_code` is 0 when nothing has failed, 1 when something has, 2 when nothing could be tested."""

    def __init__(self, folder: Path, *, suspend: bool = False) -> None:
        self._folder = folder
        self._suspend = suspend
        self.exit_code = NOTHING_TESTED

    def checks(self) -> Iterator[HardwareCheck]:
        """Each as soon as it is known. A module that is loaded already is tested as it is."""
        with tempfile.TemporaryDirectory(prefix="permille-selftest-") as place:
            # DKMS would take what is built in its source for part of it.
            folder = Path(shutil.copytree(self._folder, Path(place) / "kmod", ignore=_BUILT))
            yield from self._checks(folder)

    def _checks(self, folder: Path) -> Iterator[HardwareCheck]:
        loaded = LOADED.exists()
        build(folder, ["selftest-hardware"] if loaded else ["module", "selftest-hardware"])
        command: list[str | Path] = [folder / "build" / "selftest-hardware"]
        command += [] if loaded else [folder / "build" / "permille.ko"]
        command += ["--suspend"] if self._suspend else []
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "LC_ALL": "C"}) as running:
            for line in running.stdout or ():
                yield parse(line)
        self.exit_code = running.returncode


def parse(line: str) -> HardwareCheck:
    """A line of selftest-hardware: the result, and from column 8 on the text."""
    word, text = line[:8].strip(), line[8:].rstrip()
    return HardwareCheck(_RESULTS[word], text) if word in _RESULTS else HardwareCheck("", line.strip())
