"""The self-test on a processor with Intel PT: the kernel module (kmod/selftest), kmod and perf up to decoded calls."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from permille.cli.diagnosis.known_calls import INNER_OF_OUTER, Counted, NotRecordedError, PrivateMesh
from permille.cli.diagnosis.machine import intel_pt_check
from permille.mesh.errors import FailedPrecondition, NotFound

LOADED = Path("/sys/module/permille")
# DKMS keeps a module's source there.
DKMS = Path("/usr/src")
NOTHING_TESTED = 2
MODULE = "the module on this processor"
DECODED = {
    "kmod": "calls of a known program, by kmod and decoded",
    "perf": "calls of a known program, by perf and decoded",
    "vpt": "calls of a known program, by vpt and decoded",
}
SNAPSHOT = "calls of a known program, by a snapshot of perf and decoded"
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
    """Why this machine cannot run the module's test; nothing where it can."""
    why = []
    processor = intel_pt_check()
    if not processor.available and "perf" not in processor.detail:
        why.append(processor.detail)
    if uid != 0:
        why.append("it has to load a kernel module, which only root can")
    why += [f"{program} is not installed" for program in ("make", "gcc") if shutil.which(program) is None]
    return why


def missing_for_perf() -> list[str]:
    """The same of the kernel's own driver, which the module can do without."""
    processor = intel_pt_check()
    why = [] if processor.available else [processor.detail]
    return why + [f"{program} is not installed" for program in ("make", "gcc") if shutil.which(program) is None]


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
        self._results: set[str] = set()

    @property
    def exit_code(self) -> int:
        if "failed" in self._results:
            return 1
        return 0 if "ok" in self._results else NOTHING_TESTED

    def checks(self) -> Iterator[HardwareCheck]:
        """Each as soon as it is known. A module that is loaded already is tested as it is."""
        with tempfile.TemporaryDirectory(prefix="permille-selftest-") as place:
            # DKMS would take what is built in its source for part of it.
            folder = Path(shutil.copytree(self._folder, Path(place) / "kmod", ignore=_BUILT))
            for check in self._checks(folder, Path(place)):
                self._results.add(check.result)
                yield check

    def _checks(self, folder: Path, place: Path) -> Iterator[HardwareCheck]:
        module, perf = missing(os.geteuid()), missing_for_perf()
        if not (module and perf):
            build(folder, ["selftest-hardware"])
        if not module and not LOADED.exists():
            try:
                build(folder, ["module"])
            except FailedPrecondition as error:
                module = [error.message]
        if module:
            yield not_here(MODULE, module)
            yield not_here(DECODED["kmod"], module)
        else:
            yield from self._module_checks(folder)
        if perf:
            yield not_here(DECODED["perf"], perf)
            yield not_here(SNAPSHOT, perf)
        backends = [name for name, why in (("kmod", module), ("perf", perf)) if not why]
        if backends:
            yield from decoded(folder, place, backends)

    def _module_checks(self, folder: Path) -> Iterator[HardwareCheck]:
        command: list[str | Path] = [folder / "build" / "selftest-hardware"]
        command += [] if LOADED.exists() else [folder / "build" / "permille.ko"]
        command += ["--suspend"] if self._suspend else []
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "LC_ALL": "C"}) as running:
            for line in running.stdout or ():
                yield parse(line)
        if running.returncode not in (0, 1, NOTHING_TESTED):
            yield HardwareCheck("failed", f"{MODULE}: the test ended by {running.returncode}")


def decoded(folder: Path, place: Path, backends: Sequence[str]) -> Iterator[HardwareCheck]:
    """A known program, recorded by each back end and decoded by services of its own."""
    mesh = PrivateMesh(place)
    with ExitStack() as stack:
        if "kmod" in backends and not LOADED.exists():
            subprocess.run(["insmod", folder / "build" / "permille.ko"], capture_output=True, check=False)
            stack.callback(subprocess.run, ["rmmod", "permille"], capture_output=True, check=False)
        try:
            stack.enter_context(mesh.up())
        except NotRecordedError as error:
            yield HardwareCheck("failed", str(error))
            return
        for backend in backends:
            yield counted(mesh, folder / "build" / "known-calls", backend)
            if backend == "perf":
                yield counted(mesh, folder / "build" / "known-calls", backend, snapshot=True)


def counted(mesh: PrivateMesh, program: Path, backend: str, *, snapshot: bool = False) -> HardwareCheck:
    """What the decoded recording says of the program, against what is known."""
    what = SNAPSHOT if snapshot else DECODED[backend]
    try:
        found = mesh.count_calls(program, backend, snapshot=snapshot)
    except NotRecordedError as error:
        return HardwareCheck("failed", f"{what}: {error}") if error.here else not_here(what, [str(error)])
    return judged(what, found, snapshot=snapshot)


def judged(what: str, found: Counted, *, snapshot: bool = False) -> HardwareCheck:
    """A snapshot has to have passed the end of its buffer, and to be whole from its first packet on."""
    if snapshot and not found.overwritten:
        return HardwareCheck("failed", f"{what}: the end of its buffer was not passed")
    if snapshot and found.losses:
        return HardwareCheck("failed", f"{what}: its report has losses, {found.lost_bytes} bytes")
    told = f"{found.inner} calls in {found.outer}, {INNER_OF_OUTER} in each; {found.instructions} instructions"
    if found.as_known:
        return HardwareCheck("ok", f"{what}: {told}")
    return HardwareCheck("failed", f"{what}: not {told}; {found.lost_bytes} bytes are lost")


def not_here(what: str, why: Sequence[str]) -> HardwareCheck:
    return HardwareCheck("not possible", f"{what}: not on this machine, because {'; and '.join(why)}")


def parse(line: str) -> HardwareCheck:
    """A line of selftest-hardware: the result, and from column 8 on the text."""
    word, text = line[:8].strip(), line[8:].rstrip()
    return HardwareCheck(_RESULTS[word], text) if word in _RESULTS else HardwareCheck("", line.strip())
