"""What this machine can do, found out without any service."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

from permille.cli.diagnosis.check import Check
from permille.mesh.bpf import libbpf
from permille.mesh.config import MeshConfig
from permille.mesh.embedded_etcd import etcd_binary
from permille.mesh.errors import PermilleError

NEEDED = ("platform", "qemu", "vpt", "shared_memory", "etcd", "store")
_CPUINFO = Path("/proc/cpuinfo")
_INTEL_PT = Path("/sys/bus/event_source/devices/intel_pt")
_NO_PT = "this processor (or virtual machine) has no Intel PT"
_MODULE = Path("/sys/module/permille")
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - looked at, not written
_LEAST_SHARED_BYTES = 64 << 20
_LEAST_STORE_BYTES = 1 << 30
_OLDEST_QEMU = (7, 2)
_QEMU_PACKAGE = "sudo apt-get install qemu-user"


def machine_checks(config: MeshConfig) -> list[Check]:
    """Everything, in the order in which it is shown."""
    looks: dict[str, Callable[[], Check]] = {
        "platform": platform_check,
        "qemu": qemu_check,
        "vpt": plugin_check,
        "shared_memory": shared_memory_check,
        "intel_pt": intel_pt_check,
        "kmod": module_check,
        "bpf": bpf_check,
        "etcd": partial(etcd_check, config),
        "store": partial(store_check, config.store_url),
    }
    return [_looked(name, look) for name, look in looks.items()]


def _looked(name: str, look: Callable[[], Check]) -> Check:
    try:
        return look()
    except OSError as error:
        # One thing that nobody can look at is no reason to be silent about the others.
        return _check(
            name, False, f"cannot be looked at: {error.filename}: {error.strerror}", "permille support-bundle"
        )


def _check(name: str, available: bool, detail: str, fix: str = "") -> Check:
    return Check(name, available, detail, "" if available else fix, name in NEEDED)


def platform_check() -> Check:
    """Linux on x86-64."""
    system, machine = platform.system(), platform.machine()
    right = (system, machine) == ("Linux", "x86_64")
    return _check("platform", right, f"{system} {platform.release()} on {machine}", "use an x86-64 Linux machine")


def intel_pt_check() -> Check:
    """The processor's flag, and perf's device."""
    if not _in_processor():
        return _check("intel_pt", False, _NO_PT, "not needed: vpt records without it")
    if not _INTEL_PT.exists():
        detail = "the processor has it, but perf offers no intel_pt"
        return _check("intel_pt", False, detail, "not needed: vpt records without it")
    return _check("intel_pt", True, "the processor has it and perf offers it")


def module_check() -> Check:
    """permille's kernel module."""
    if _MODULE.exists():
        return _check("kmod", True, "loaded")
    detail = "the permille kernel module is not loaded" if _in_processor() else _NO_PT
    return _check("kmod", False, detail, "not needed: vpt records without it")


def _in_processor() -> bool:
    flags = re.search(r"^flags\s*:(.*)$", _CPUINFO.read_text(), re.MULTILINE)
    return flags is not None and "intel_pt" in flags[1].split()


def qemu_check() -> Check:
    """QEMU's user emulator, new enough."""
    path = shutil.which("qemu-x86_64")
    if path is None:
        return _check("qemu", False, "qemu-x86_64 is not installed", _QEMU_PACKAGE)
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"version (\d+)\.(\d+)\S*", said)
    if found is None:
        return _check("qemu", False, f"{path} does not say its version", _QEMU_PACKAGE)
    new_enough = (int(found[1]), int(found[2])) >= _OLDEST_QEMU
    return _check("qemu", new_enough, f"{path}, {found[0]}", _QEMU_PACKAGE)


def plugin_check() -> Check:
    """The recorder, beside the controller's modules."""
    spec = importlib.util.find_spec("permille.controller")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not folders:
        return _check("vpt", False, "the controller is not installed", "make setup")
    plugin = Path(folders[0]) / "vpt" / "libpermille-vpt.so"
    built = plugin.is_file()
    return _check("vpt", built, str(plugin) if built else f"{plugin} is not built", "make setup")


def shared_memory_check() -> Check:
    """Room for trace buffers."""
    free = _free_bytes(_SHARED_MEMORY)
    fix = f"sudo mount -o remount,size=1G {_SHARED_MEMORY}"
    return _check("shared_memory", free >= _LEAST_SHARED_BYTES, f"{free >> 20} MiB free in {_SHARED_MEMORY}", fix)


def bpf_check() -> Check:
    """Whether the kernel's scheduling can be seen: libbpf is there and this user may load programs."""
    try:
        libbpf()
    except PermilleError as error:
        return _check("bpf", False, f"{error.message}: times contain what other threads took", error.help)
    if os.geteuid() != 0:
        return _check("bpf", False, "only root may load BPF programs", "sudo permille up")
    return _check("bpf", True, "libbpf is installed; the controller tries it out when it starts")


def etcd_check(config: MeshConfig) -> Check:
    """A binary for the private one, where none is configured."""
    if config.etcd:
        return _check("etcd", True, f"configured: {', '.join(config.etcd)}")
    try:
        return _check("etcd", True, str(etcd_binary()))
    except PermilleError as error:
        return _check("etcd", False, error.message, error.help)


def store_check(url: str) -> Check:
    """Whether a folder can be written; a store elsewhere is asked by the controller."""
    parts = urlsplit(url)
    if parts.scheme != "file":
        return _check("store", True, f"{parts.scheme}://{parts.hostname or ''}{parts.path} (asked when the mesh runs)")
    folder = Path(unquote(parts.path))
    try:
        existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    except PermissionError as error:
        fix = "look as its owner, or choose another: --state-dir, PERMILLE_STORE"
        return _check("store", False, f"{error.filename} may not be seen by this user: {error.strerror}", fix)
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        fix = f"sudo install -d -o $USER {folder}, or choose another: --state-dir, PERMILLE_STORE"
        return _check("store", False, f"{existing} cannot be written: {error.strerror}", fix)
    free = _free_bytes(existing)
    fix = "make room, delete sessions (`permille delete`), or choose another store: PERMILLE_STORE"
    return _check("store", free >= _LEAST_STORE_BYTES, f"{folder}, {free >> 20} MiB free", fix)


def _free_bytes(folder: Path) -> int:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize
