"""An alert of a real Prometheus, sent by a real Alertmanager, has its program recorded, once."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from permille.api.coverage.v1 import coverage_pb2
from permille.client import Client

from tests.processes import PATIENCE_S, await_true, child
from tests.whole_mesh import WholeMesh

TOKEN = "a-token"
PROMETHEUS = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{folder}/rules.yml]
alerting:
  alertmanagers: [{{static_configs: [{{targets: ["{alertmanager}"]}}]}}]
scrape_configs:
  - job_name: permille
    static_configs: [{{targets: ["{exporter}"]}}]
"""
RULES = """
groups:
  - name: permille
    rules:
      - alert: Slow
        expr: process_resident_memory_bytes{job="permille"} > 0
        labels: {process_name: busy}
      - alert: SlowToo
        expr: up{job="permille"} == 1
"""
# Everything at once and again every second.
ALERTMANAGER = """
route: {{receiver: permille, group_by: [job], group_wait: 0s, group_interval: 1s, repeat_interval: 1s}}
receivers:
  - name: permille
    webhook_configs:
      - url: http://{webhook}/alerts
        http_config: {{authorization: {{credentials: {token}}}}}
"""


@dataclass
class Webhook:
    """A running permille-alertmanager."""

    address: str
    log: Path

    def counted(self, outcome: str) -> int:
        with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=60) as answer:
            found = re.search(rf'outcome="{outcome}"}} ([0-9.]+)', answer.read().decode())
        return int(float(found[1])) if found else 0

    def post(self, message: Any, token: str = TOKEN) -> tuple[int, dict[str, Any]]:
        request = urllib.request.Request(
            f"http://{self.address}/alerts",
            data=json.dumps(message).encode(),
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, json.load(refusal)


@contextlib.contextmanager
def listening(command: list[str], log: Path, said: str) -> Iterator[str]:
    """A process that logs where it listens, and that address."""
    with log.open("w") as file, child(command, stdout=file, stderr=file) as process:
        await_true(lambda: re.search(said, log.read_text()) or process.poll() is not None, PATIENCE_S, command[0])
        found = re.search(said, log.read_text())
        assert found, log.read_text()
        yield found[1]


@contextlib.contextmanager
def webhook_of(mesh: WholeMesh, period_ms: str) -> Iterator[Webhook]:
    (mesh.state / "token").write_text(TOKEN + "\n")
    command = [sys.executable, "-m", "permille.alertmanager.main", "--listen", "127.0.0.1:0", "--period-ms", period_ms]
    command += ["--coverage", mesh.endpoint("coverage").address, "--token-file", str(mesh.state / "token")]
    log = mesh.state / f"webhook-{period_ms}.log"
    with listening(command, log, r"listening on (\S+)") as address:
        yield Webhook(address, log)


@pytest.fixture(scope="module")
def webhook(mesh: WholeMesh) -> Iterator[Webhook]:
    with webhook_of(mesh, "100") as running:
        yield running


def anomalies(mesh: WholeMesh) -> dict[str, coverage_pb2.CoverageRequest]:
    """The operations of anomalies, by request_id."""
    found = {}
    with Client(mesh.endpoint("coverage").address) as client:
        for operation in client.operations():
            request = coverage_pb2.StartCoverageRequest()
            operation.request.Unpack(request)
            if request.coverage.purpose == coverage_pb2.PURPOSE_ANOMALY:
                found[operation.request_id] = request.coverage
    return found


def alert(fingerprint: str, status: str = "firing", **labels: str) -> dict[str, Any]:
    return {"status": status, "labels": labels, "fingerprint": fingerprint, "startsAt": "2026-03-01T10:00:00Z"}


def test_one_alert_that_cannot_be_recorded_does_not_hinder_the_others(
    mesh: WholeMesh, webhook: Webhook, busy: Path
) -> None:
    before = set(anomalies(mesh))
    good, bad, gone = (
        alert("a1", process_name="busy"),
        alert("b2", pod="p"),
        alert("c3", "resolved", process_name="busy"),
    )
    with mesh.running(str(busy), "paced"):
        status, told = webhook.post({"version": "4", "alerts": [bad, good, gone]})
        assert (status, [one["outcome"] for one in told["alerts"]]) == (400, ["refused", "accepted", "resolved"])
        assert "wanted container_id" in told["alerts"][0]["message"]
        assert webhook.post({"version": "4", "alerts": [good]}) == (200, {"alerts": [told["alerts"][1]]})
        with Client(mesh.endpoint("coverage").address) as client:
            client.wait(told["alerts"][1]["operation"])
        # Also by one with other settings.
        with webhook_of(mesh, "200") as other:
            assert other.post({"version": "4", "alerts": [good]}) == (200, {"alerts": [told["alerts"][1]]})
    assert len(set(anomalies(mesh)) - before) == 1
    assert "alert b2 refused: the labels name nothing to record" in webhook.log.read_text()
    absent = {"version": "4", "alerts": [alert("d4", process_name="nobody")]}
    assert webhook.post(absent)[0] == 400
    assert webhook.post(absent, token="another") == (401, {"error": "the header Authorization does not bear the token"})
    assert webhook.post("nothing")[0] == 400


def test_what_may_be_recorded_later_is_asked_to_be_repeated(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "permille.alertmanager.main", "--listen", "127.0.0.1:0"]
    with listening([*command, "--coverage", "127.0.0.1:1"], tmp_path / "log", r"listening on (\S+)") as address:
        webhook = Webhook(address, tmp_path / "log")
        bad, good = alert("b2", pod="p"), alert("a1", process_name="busy")
        status, told = webhook.post({"version": "4", "alerts": [bad, good]})
        assert (status, [one["outcome"] for one in told["alerts"]]) == (503, ["refused", "failed"])
        with urllib.request.urlopen(f"http://{address}/healthz", timeout=60) as answer:
            assert answer.read() == b"ok\n"


@pytest.mark.slow
def test_a_firing_alert_records_its_program_once_however_often_it_is_repeated(
    mesh: WholeMesh, webhook: Webhook, busy: Path, tmp_path: Path
) -> None:
    before, refused = set(anomalies(mesh)), webhook.counted("refused")
    (tmp_path / "rules.yml").write_text(RULES)
    (tmp_path / "alertmanager.yml").write_text(ALERTMANAGER.format(webhook=webhook.address, token=TOKEN))
    listen = ["--web.listen-address=127.0.0.1:0", "--log.level=info"]
    alertmanager = [
        "prometheus-alertmanager",
        f"--config.file={tmp_path}/alertmanager.yml",
        "--cluster.listen-address=",
    ]
    alertmanager += [f"--storage.path={tmp_path}/alertmanager", *listen]
    said = r'msg="Listening on" address=(\S+)'
    with mesh.running(str(busy), "paced"), listening(alertmanager, tmp_path / "alertmanager.log", said) as address:
        exporter = mesh.endpoint("coverage").metadata["metrics"]
        text = PROMETHEUS.format(folder=tmp_path, alertmanager=address, exporter=exporter)
        (tmp_path / "prometheus.yml").write_text(text)
        prometheus = ["prometheus", f"--config.file={tmp_path}/prometheus.yml", *listen]
        prometheus += [f"--storage.tsdb.path={tmp_path}/prometheus"]
        accepted = webhook.counted("accepted")
        with (tmp_path / "prometheus.log").open("w") as log, child(prometheus, stdout=log, stderr=subprocess.STDOUT):
            await_true(lambda: webhook.counted("accepted") >= accepted + 3, PATIENCE_S, "an alert and its repetitions")
            # The other alert of the group names nothing, and is told so each time.
            assert webhook.counted("refused") > refused
        (started,) = set(anomalies(mesh)) - before
        assert started.startswith("alertmanager-")
        with Client(mesh.endpoint("coverage").address) as client:
            (operation,) = [one for one in client.operations() if one.request_id == started]
            (session,) = client.wait(operation).sessions
            seen = client.coverage(sessions=[session])
        assert "step_of_work" in {function.name for function in seen.functions}
