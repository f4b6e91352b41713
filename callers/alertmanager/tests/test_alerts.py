"""What becomes of Alertmanager's messages, as its documentation describes them (version 4)."""

from __future__ import annotations

from typing import Any

import pytest
from permille.alertmanager.alerts import LABELS, BadAlertError, Recording, alerts_of
from permille.alertmanager.main import main
from permille.api.coverage.v1 import coverage_pb2


def message(**labels: str) -> dict[str, Any]:
    alert = {
        "status": "firing",
        "labels": {"alertname": "Slow", **labels},
        "annotations": {},
        "startsAt": "2026-03-01T10:00:00.123456789Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "http://prometheus/graph",
        "fingerprint": "a1b2c3d4e5f60718",
    }
    return {"version": "4", "groupKey": "{}", "status": "firing", "receiver": "permille", "alerts": [alert]}


def target(**labels: str) -> coverage_pb2.Target:
    (alert,) = alerts_of(message(**labels))
    return Recording().of(alert).target


def test_the_narrowest_target_that_the_labels_name_is_recorded_as_an_anomaly() -> None:
    pod = {"namespace": "shop", "pod": "checkout-1"}
    assert target(**pod).pod == "shop/checkout-1"
    assert target(**pod, container_id="containerd://0123456789ab") == coverage_pb2.Target(container_id="0123456789ab")
    named = {"process_name": "redis-server", "permille_node": "n1"}
    assert target(**named) == coverage_pb2.Target(process_name="redis-server", node="nodes/n1")
    (alert,) = alerts_of(message(**pod))
    request = Recording(period_ms=200, namespace="other").of(alert)
    assert (request.purpose, request.period_ms, request.namespace) == (coverage_pb2.PURPOSE_ANOMALY, 200, "shop")


def test_labels_can_be_named_otherwise() -> None:
    recording = Recording({**LABELS, "process_name": "job"}, namespace="ops")
    (alert,) = alerts_of(message(job="nginx"))
    assert (recording.of(alert).target.process_name, recording.of(alert).namespace) == ("nginx", "ops")


def test_labels_that_name_nothing_are_told_with_what_was_wanted() -> None:
    with pytest.raises(
        BadAlertError, match=r"wanted container_id, or namespace and pod, or process_name; .*alertname, pod"
    ):
        target(pod="alone")


def test_an_alert_has_one_request_id_as_long_as_it_fires() -> None:
    (first,), (again,), later = alerts_of(message()), alerts_of(message(pod="p")), message()
    later["alerts"][0]["startsAt"] = "2026-03-01T10:00:01Z"
    elsewhere = message()
    elsewhere["alerts"][0]["startsAt"] = "2026-03-01T12:00:00.123456789+02:00"
    assert first.request_id == again.request_id == alerts_of(elsewhere)[0].request_id
    # One trouble of the program, however many attempts follow.
    assert Recording().of(alerts_of(message(process_name="p"))[0]).cause == first.request_id
    assert first.request_id == "alertmanager-a1b2c3d4e5f60718-1772359200123"
    assert alerts_of(later)[0].request_id != first.request_id


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (None, "no message"),
        ({"version": "4"}, "no list `alerts`"),
        ({"version": "3", "alerts": []}, "version '3'"),
        ({"version": "4", "alerts": [{"status": "firing"}]}, "no labels"),
        ({"version": "4", "alerts": ["x"]}, "no labels"),
    ],
)
def test_what_is_no_message_is_refused_with_what_is_wrong(wrong: Any, told: str) -> None:
    with pytest.raises(BadAlertError, match=told):
        alerts_of(wrong)


@pytest.mark.parametrize(("key", "value"), [("startsAt", "soon"), ("fingerprint", ""), ("fingerprint", "../a")])
def test_an_alert_without_identity_is_refused(key: str, value: str) -> None:
    spoilt = message(process_name="a")
    spoilt["alerts"][0][key] = value
    with pytest.raises(BadAlertError, match=key):
        _ = alerts_of(spoilt)[0].request_id


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--listen", "0.0.0.0:9095"], "needs --https-cert"),
        (["--listen", "9095"], "write HOST:PORT"),
        (["--label", "job=x"], "WHAT one of namespace"),
    ],
)
def test_wrong_usage_is_told(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--coverage", "127.0.0.1:7600", *arguments])
    assert ended.value.code == 2
    assert told in capsys.readouterr().err
