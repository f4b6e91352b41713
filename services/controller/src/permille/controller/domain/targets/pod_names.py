"""Which pod has which UID, from the folders that the kubelet keeps for logs: `<namespace>_<name>_<uid>`.

Kubernetes, pkg/kubelet/kuberuntime, BuildPodLogsDirectory. Names of namespaces and pods have no underscore (RFC 1123).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

LOGS = Path("/var/log/pods")
PARTS = 3


@dataclass(frozen=True)
class PodName:
    namespace: str
    name: str
    uid: str

    @property
    def full(self) -> str:
        return f"{self.namespace}/{self.name}"


def pods_here(logs: Path = LOGS) -> list[PodName]:
    """Also those that have ended and whose logs are kept; none where no kubelet is."""
    try:
        names = sorted(folder.name for folder in logs.iterdir())
    except OSError:
        return []
    return [PodName(*parts) for name in names if len(parts := name.split("_")) == PARTS]
