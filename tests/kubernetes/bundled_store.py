"""The chart's S3 server on this machine: its container, with certificates and a key as docs/kubernetes.md has them."""

from __future__ import annotations

import os
import ssl
import subprocess
import urllib.error
import urllib.request
from http import HTTPStatus
from pathlib import Path

import pytest
from permille.mesh import certs

from tests.kubernetes.chart import KMOD, NAMESPACE, Helm, environment, pods
from tests.processes import PATIENCE_S, Process, await_true, free_port

REPOSITORY = Path(__file__).parents[2]
HOST = f"permille-store.{NAMESPACE}.svc"
SECRET = {"AWS_ACCESS_KEY_ID": "permille", "AWS_SECRET_ACCESS_KEY": "a-secret-of-this-test"}


def built() -> Path:
    """The server, built now where it is not there yet."""
    build = REPOSITORY / "deploy/images/store/build"
    return Path(subprocess.run([build], stdout=subprocess.PIPE, text=True, check=True).stdout.strip())


class BundledStore:
    """One server; `volume` is what its claim brings, `folder` has its certificates and what it says."""

    def __init__(self, helm: Helm, folder: Path, volume: Path) -> None:
        self.folder = folder
        self.volume = volume
        self._port = free_port()
        self._process: Process | None = None
        rendered = pods(helm.rendered(KMOD))
        (self._container,) = rendered["permille-store"]["spec"]["containers"]
        (client,) = rendered["permille-controller"]["spec"]["containers"]
        known = environment(client)
        # What a pod that uses it is told.
        self.client = {name: self._here(known[name]) for name in ("PERMILLE_STORE", "AWS_CA_BUNDLE", "SSL_CERT_FILE")}
        self.client |= {**SECRET, "AWS_EC2_METADATA_DISABLED": "true"}
        certs.create_authority(folder)
        made = certs.issue_service(folder, ["store"], node="store", hosts=[HOST])
        made.certificate.rename(folder / "tls.crt")
        made.key.rename(folder / "tls.key")

    @property
    def url(self) -> str:
        """As the services have it."""
        return self.client["PERMILLE_STORE"]

    def start(self) -> None:
        """Returns when the readiness probe is answered."""
        own = {one["name"]: SECRET[one["valueFrom"]["secretKeyRef"]["key"]] for one in self._container["env"]}
        arguments = [self._here(argument) for argument in self._container["args"]]
        command = [str(REPOSITORY / "deploy/images/store/permille-store"), *arguments]
        variables = {**own, "PATH": f"{built().parent}:{os.environ['PATH']}"}
        with (self.folder / "log").open("ab") as log:
            self._process = process = subprocess.Popen(command, env=variables, stdout=log, stderr=log, text=True)

        def ready() -> bool:
            assert process.poll() is None, (self.folder / "log").read_text()
            return self._answers(self._container["readinessProbe"]["httpGet"]["path"])

        await_true(ready, PATIENCE_S, "the store")

    def kill(self) -> None:
        """kill -9; what is stored stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE_S)

    def _answers(self, path: str) -> bool:
        trust = ssl.create_default_context(cafile=self.folder / "ca.crt")
        try:
            with urllib.request.urlopen(f"https://localhost:{self._port}{path}", context=trust, timeout=60) as answer:
                return bool(answer.status == HTTPStatus.OK)
        except OSError as error:
            assert not isinstance(error, urllib.error.HTTPError), error
            return False

    def _here(self, value: str) -> str:
        value = value.replace(f"{HOST}:7070", f"localhost:{self._port}").replace(
            "0.0.0.0:7070", f"127.0.0.1:{self._port}"
        )
        return value.replace("/etc/permille/store", str(self.folder)).replace("/var/lib/store", str(self.volume))


def mounted(disk: Path, folder: Path) -> None:
    """A file system of a file; skips the test where that cannot be."""
    folder.mkdir()
    # What nobody has asked to be written is not written for a while.
    command = ["mount", "-t", "ext4", "-o", "loop,commit=600", str(disk), str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a file system of its own needs root and a loop device")
