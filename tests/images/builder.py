"""The images of deploy/images/Dockerfile, built by buildah on mmdebstrap's Debian: no registry is asked.

Every stage runs as it is but `ptcore`, in whose place comes what this checkout has compiled.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
# As Debian's own slim images: without manuals, and dpkg does not wait for the disk after each file, here or in a stage.
DPKG = ("force-unsafe-io", *(f"path-exclude=/usr/share/{folder}/*" for folder in ("doc", "locale", "man")))
# As a container has it: a root that nobody may write to, and of the host what the pod's volumes bring.
ENTER = """
set -euo pipefail
root=$1 rights=$2; shift 2
for folder in /var/lib/permille /var/lib/permille-shared; do mkdir -p "$root$folder"; done
mount --bind "$root" "$root"
mount -o remount,ro,bind "$root"
for tree in /proc /sys /dev; do mount --rbind "$tree" "$root$tree"; done
mount -t tmpfs tmpfs "$root/tmp"
mount --bind "$STATE" "$root/var/lib/permille"
mount --bind "$SHARED" "$root/var/lib/permille-shared"
exec chroot "$root" setpriv $rights --inh-caps=-all --no-new-privs --pdeathsig KILL -- env -i "$@"
"""


@dataclass(frozen=True)
class Image:
    """One target's root file system, mounted, and what is to run in it."""

    root: Path
    entrypoint: list[str]
    variables: list[str]
    user: str

    def command(self, *arguments: str, capabilities: Sequence[str] = (), **settings: str) -> list[str]:
        """Its entry point with these capabilities and no other; STATE and SHARED are folders for its two volumes."""
        user, _, group = (self.user or "0:0").partition(":")
        bounds = ",".join(["-all", *(f"+{name.lower()}" for name in capabilities)])
        # The group of the volume is every container's.
        rights = f"--reuid={user} --regid={group} --groups=65532 --bounding-set={bounds}"
        variables = [*self.variables, "HOME=/tmp", *(f"{key}={value}" for key, value in settings.items())]
        inside = ["bash", "-c", ENTER, "bash", str(self.root), rights, *variables, *self.entrypoint, *arguments]
        return ["unshare", "--mount", "--propagation", "private", *inside]


class Builder:
    """A storage of images in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        below = subprocess.run(
            ["findmnt", "-no", "FSTYPE", "-T", folder], stdout=subprocess.PIPE, text=True, check=True
        )
        driver = "vfs" if below.stdout.strip() == "overlay" else "overlay"
        self._buildah = [
            "buildah",
            "--storage-driver",
            driver,
            "--root",
            f"{folder}/root",
            "--runroot",
            f"{folder}/run",
        ]

    def prepare(self) -> None:
        """The base image, and ptcore's wheel."""
        base = self._folder / "base.tar"
        certificates = f"copy-in {CERTIFICATES} {Path(CERTIFICATES).parent}"
        packages = ["--variant=apt", "--include=ca-certificates", f"--customize-hook={certificates}"]
        packages += [f"--dpkgopt={option}" for option in DPKG]
        run("mmdebstrap", "--quiet", *packages, "bookworm", str(base))
        container = self._said("from", "scratch")
        run(*self._buildah, "add", "-q", container, str(base), "/")
        run(*self._buildah, "commit", "-q", "--rm", container, "localhost/base")
        base.unlink()
        _pack_ptcore(self._folder / "ptcore")

    def built(self, target: str) -> Image:
        """An image of the Dockerfile."""
        cache = Path(os.environ.get("UV_CACHE_DIR") or Path.home() / ".cache" / "uv")
        cache.mkdir(parents=True, exist_ok=True)
        options = [
            "-q",
            "--isolation",
            "chroot",
            "--network",
            "host",
            "--layers",
            "--volume",
            f"{cache}:/root/.cache/uv",
        ]
        wheel = ["--build-context", f"ptcore={self._folder / 'ptcore'}"]
        file = [
            "--build-arg",
            "BASE=localhost/base",
            "-f",
            "deploy/images/Dockerfile",
            "--target",
            target,
            "-t",
            target,
        ]
        run(*self._buildah, "bud", *options, *wheel, *file, ".")
        config = json.loads(self._said("inspect", "--type", "image", target))["OCIv1"]["config"]
        root = Path(self._said("mount", self._said("from", target)))
        return Image(root, config["Entrypoint"], config["Env"], config.get("User", ""))

    def close(self) -> None:
        """Unmounts everything."""
        subprocess.run([*self._buildah, "rm", "--all"], stdout=subprocess.DEVNULL, check=False)
        subprocess.run(["umount", "-qR", f"{self._folder}/root/overlay"], check=False)

    def _said(self, *arguments: str) -> str:
        return subprocess.run(
            [*self._buildah, *arguments], stdout=subprocess.PIPE, text=True, check=True
        ).stdout.strip()


def _pack_ptcore(folder: Path) -> None:
    """A wheel of what this checkout has built: four minutes of compiling less."""
    folder.mkdir()
    installed = distribution("permille-ptcore")
    about = f"permille_ptcore-{installed.version}.dist-info"
    source = ROOT / "services/decoder/ptcore/python"
    files = {str(file.relative_to(source)): file.read_bytes() for file in source.glob("permille/ptcore/*.*")}
    files |= {f"{about}/{name}": (installed.read_text(name) or "").encode() for name in ("METADATA", "WHEEL")}
    files[f"{about}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{about}/RECORD"]).encode()
    (tag,) = {line.split()[1] for line in files[f"{about}/WHEEL"].decode().splitlines() if line.startswith("Tag:")}
    with zipfile.ZipFile(folder / f"permille_ptcore-{installed.version}-{tag}.whl", "w") as wheel:
        for name, content in files.items():
            wheel.writestr(name, content)


def run(*command: str) -> None:
    """Raises `AssertionError` with what a failed command said."""
    done: Any = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}"


@contextmanager
def building() -> Iterator[Builder]:
    """A builder that leaves nothing."""
    folder = Path(tempfile.mkdtemp(prefix="permille-images-", dir="/var/tmp"))
    # Other users' processes go through it.
    folder.chmod(0o755)
    builder = Builder(folder)
    try:
        builder.prepare()
        yield builder
    finally:
        builder.close()
        shutil.rmtree(folder, ignore_errors=True)
