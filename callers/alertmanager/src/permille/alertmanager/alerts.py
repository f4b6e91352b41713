"""What Alertmanager sends, and what is asked of permille for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from permille.api.coverage.v1 import coverage_pb2
from permille.client import wish

# Which label says what. Kubernetes' own labels name pods; the others have to be put there by a rule.
LABELS = {
    "namespace": "namespace",
    "pod": "pod",
    "container_id": "container_id",
    "process_name": "process_name",
    "node": "permille_node",
}
_VERSION = "4"


class BadAlertError(ValueError):
    """The message or one of its alerts cannot be meant; sending it again does not help."""


@dataclass(frozen=True)
class Alert:
    """One alert of a message. `request_id`: the same as long as it fires."""

    fingerprint: str
    firing: bool
    labels: Mapping[str, str]
    starts_at: str

    @property
    def request_id(self) -> str:
        """Raises `BadAlertError` without a fingerprint or for a time that is none."""
        try:
            starts_ms = round(datetime.fromisoformat(self.starts_at).timestamp() * 1000)
        except ValueError:
            raise BadAlertError(f"startsAt is {self.starts_at!r}, not a time") from None
        if not self.fingerprint.isalnum():
            raise BadAlertError(f"the fingerprint is {self.fingerprint!r}")
        return f"alertmanager-{self.fingerprint}-{starts_ms}"


@dataclass(frozen=True)
class Recording:
    """How an alert becomes a wish. `labels`: by what they say; `period_ms` 0: decided by permille."""

    labels: Mapping[str, str] = field(default_factory=LABELS.copy)
    period_ms: int = 0
    # Whose quota it counts against where the alert names no namespace.
    namespace: str = ""

    def of(self, alert: Alert) -> coverage_pb2.CoverageRequest:
        """The narrowest target that the labels name: a container, a pod, or processes of a name.

        Raises `BadAlertError` when they name none, or the alert has no time or fingerprint.
        """
        said = {what: alert.labels.get(label, "") for what, label in self.labels.items()}
        namespace = said["namespace"]
        target: dict[str, Any] = {}
        if said["container_id"]:
            # As Kubernetes writes it: containerd://ID.
            target["container_id"] = said["container_id"].rpartition("//")[2]
        elif namespace and said["pod"]:
            target["pod"] = f"{namespace}/{said['pod']}"
        elif said["process_name"]:
            target |= {"process_name": said["process_name"], "node": said["node"]}
        else:
            raise BadAlertError(
                "the labels name nothing to record: wanted {container_id}, or {namespace} and {pod}, or {process_name};"
                " there are {present}".format(present=", ".join(sorted(alert.labels)) or "none", **self.labels)
            )
        return wish(
            **target,
            purpose="anomaly",
            period_ms=self.period_ms,
            namespace=namespace or self.namespace,
            # However many attempts it takes: the alert is one trouble.
            cause=alert.request_id,
        )


def alerts_of(message: Any) -> list[Alert]:
    """The alerts of a webhook message (version 4). Raises `BadAlertError`."""
    if not isinstance(message, dict) or not isinstance(message.get("alerts"), list):
        raise BadAlertError("the body is no message of Alertmanager's webhook: it has no list `alerts`")
    if message.get("version") != _VERSION:
        raise BadAlertError(f"the message has version {message.get('version')!r}; version {_VERSION!r} is understood")
    return [_alert(one) for one in message["alerts"]]


def _alert(one: Any) -> Alert:
    labels = one.get("labels") if isinstance(one, dict) else None
    if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
        raise BadAlertError(f"an alert has no labels: {str(one)[:200]}")
    told = (str(one.get(key, "")) for key in ("fingerprint", "status", "startsAt"))
    fingerprint, status, starts_at = told
    return Alert(fingerprint, status == "firing", labels, starts_at)
