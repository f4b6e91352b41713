"""The kernel headers that BCC compiles against."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

SOURCES = Path("/usr/src")
MODULES = Path("/lib/modules")


def kernel_source(cache: Path, *, release: str = "", sources: Path = SOURCES, modules: Path = MODULES) -> Path | None:
    """A folder for BCC_KERNEL_SOURCE, or None where BCC finds the running kernel's own headers or there are none.

    Debian splits headers into a common tree and one of the architecture; a kernel that Debian did not build has neither
    below /lib/modules. The newest pair found is merged into `cache` as a tree of links, once.
    """
    release = release or os.uname().release
    if (modules / release / "build").exists():
        return None
    pairs = sorted(header_pairs(sources), key=lambda pair: version_of(pair[1].name))
    if not pairs:
        return None
    common, architecture = pairs[-1]
    merged = cache / architecture.name
    if not merged.exists():
        merge([common, architecture], merged)
    return merged


def header_pairs(sources: Path) -> list[tuple[Path, Path]]:
    pairs = []
    for architecture in sources.glob("linux-headers-*-amd64"):
        version = architecture.name.removeprefix("linux-headers-").removesuffix("-amd64").removesuffix("-cloud")
        common = sources / f"linux-headers-{version.removesuffix('-rt')}-common"
        if common.is_dir():
            pairs.append((common, architecture))
    return pairs


def version_of(name: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", name)]


def merge(trees: list[Path], target: Path) -> None:
    """Links every file of the trees into one; a later tree wins. The target appears whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    for tree in trees:
        for folder, _, files in os.walk(tree, followlinks=True):
            into = partial / Path(folder).relative_to(tree)
            into.mkdir(parents=True, exist_ok=True)
            for file in files:
                link = into / file
                link.unlink(missing_ok=True)
                link.symlink_to(Path(folder) / file)
    try:
        partial.rename(target)
    except OSError:
        # Another process was faster.
        shutil.rmtree(partial)
