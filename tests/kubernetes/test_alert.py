"""An alert of a namespace is recorded with what docs/kubernetes.md sets: TLS, the role external, the chart."""

from __future__ import annotations

import json
import re
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from permille.client import Client
from permille.mesh import certs
from permille.mesh.auth import Role

from tests.kubernetes.chart import ALERTS, Helm, environment, pods
from tests.processes import PATIENCE_S, await_true, child
from tests.whole_mesh import WholeMesh, new_mesh

pytestmark = pytest.mark.slow
TOKEN = "a-token"
_CALLERS = "PERMILLE_COVERAGE_CALLERS"
_MESH_TLS = {"CA": "ca.crt", "CERT": "mesh.crt", "KEY": "mesh.key"}


@dataclass
class Cluster:
    """What the chart starts, on this machine. `folder`: its secrets."""

    mesh: WholeMesh
    folder: Path

    @property
    def address(self) -> str:
        return self.mesh.endpoint("coverage").address

    def files(self, name: str) -> dict[str, Any]:
        return {"ca": self.folder / "ca.crt", "cert": self.folder / f"{name}.crt", "key": self.folder / f"{name}.key"}

    @contextmanager
    def webhook(self, arguments: list[str]) -> Iterator[str]:
        """Its address, started with a container's arguments: this machine's paths in place of the pod's."""
        own = self.files("alertmanager")
        here = {
            "coverage": self.address,
            "listen": "127.0.0.1:0",
            **{f"tls-{key}": path for key, path in own.items()},
            "https-cert": self.folder / "webhook.crt",
            "https-key": self.folder / "webhook.key",
            "token-file": self.folder / "token",
        }
        given = [one for one in arguments if one.removeprefix("--").partition("=")[0] not in here]
        given += [f"--{name}={value}" for name, value in here.items()]
        log = self.folder / "webhook.log"
        with (
            log.open("w") as file,
            child([sys.executable, "-m", "permille.alertmanager.main", *given], stdout=file, stderr=file) as process,
        ):
            said = r"listening on (\S+)"
            await_true(lambda: re.search(said, log.read_text()) or process.poll() is not None, PATIENCE_S, "webhook")
            found = re.search(said, log.read_text())
            assert found, log.read_text()
            yield found[1]

    def posted(self, address: str, **labels: str) -> tuple[int, dict[str, Any]]:
        """The status, and what became of an alert with these labels."""
        alert = {"status": "firing", "labels": labels, "fingerprint": "a1", "startsAt": "2026-03-01T10:00:00Z"}
        request = urllib.request.Request(
            f"https://{address}/alerts",
            data=json.dumps({"version": "4", "alerts": [alert]}).encode(),
            headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
        )
        trust = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
        try:
            with urllib.request.urlopen(request, context=trust, timeout=PATIENCE_S) as answer:
                return answer.status, json.load(answer)["alerts"][0]
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, json.load(refusal)["alerts"][0]


@pytest.fixture
def cluster(helm: Helm, tmp_path: Path) -> Iterator[Cluster]:
    """With coverage's callers from the chart."""
    folder = tmp_path / "certs"
    certs.create_authority(folder)
    services = ["allocator", "controller", "coverage", "decoder"]
    certs.issue_service(folder, services, node="mesh")
    certs.issue_service(folder, ["webhook"], node="webhook", hosts=["127.0.0.1"])
    certs.issue_user(folder, "alertmanager", roles=[Role.EXTERNAL])
    (folder / "token").write_text(TOKEN)
    (container,) = pods(helm.rendered(ALERTS))["permille-coverage"]["spec"]["containers"]
    callers = environment(container)[_CALLERS]
    tls = {f"PERMILLE_TLS_{key}": str(folder / f"{file}") for key, file in _MESH_TLS.items()}
    (tmp_path / "state").mkdir()
    mesh = new_mesh(tmp_path / "state", **{_CALLERS: callers}, **tls)
    try:
        mesh.start()
        yield Cluster(mesh, folder)
    finally:
        mesh.close()


def test_an_alert_of_a_namespace_that_the_chart_lets_it_name_is_recorded_and_no_other_one(
    helm: Helm, cluster: Cluster, busy: Path
) -> None:
    (container,) = pods(helm.rendered(ALERTS))["permille-alertmanager"]["spec"]["containers"]
    with cluster.mesh.running(str(busy), "paced"), cluster.webhook(container["args"]) as address:
        # The label `job` is the chart's word for the process.
        status, other = cluster.posted(address, namespace="bank", job="busy")
        assert (status, other["outcome"]) == (400, "refused")
        assert "NAMESPACE_NOT_ALLOWED" in other["message"]
        status, outcome = cluster.posted(address, namespace="shop", job="busy")
        assert (status, outcome["outcome"]) == (200, "accepted"), outcome
        with Client(cluster.address, **cluster.files("alertmanager")) as client:
            (session,) = client.wait(outcome["operation"]).sessions
            seen = client.coverage(sessions=[session])
    assert "step_of_work" in {function.name for function in seen.functions}
