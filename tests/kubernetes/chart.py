"""deploy/helm/permille, by a real helm."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from tests.kubernetes.api_server import CHART, Object

NAMESPACE = "tracing"
# Not typed by its authors.
_read_yaml: Callable[[str], Iterator[Any]] = partial(yaml.load_all, Loader=yaml.CSafeLoader)
KMOD: Object = {"image": {"registry": "registry.example.org"}, "controller": {"deviceResource": "example.org/permille"}}
VPT: Object = {
    "image": {"registry": "registry.example.org:5000/team", "tag": "1.2.3", "pullSecrets": [{"name": "pull"}]},
    "settings": {"log_level": "debug", "call_timeout_s": 12.5},
    "etcd": {"endpoints": ["etcd-1:2379", "etcd-2:2379"]},
    "store": {"url": "s3://traces/here?endpoint=https://s3.example.org", "credentialsSecret": "s3"},
    "controller": {"backend": "vpt", "settings": {"budget_bytes": 1048576}, "nodeSelector": {"trace": "yes"}},
    "decoder": {"replicas": 5, "settings": {"workers": 2}, "scratch": "100Gi"},
    "coverage": {"settings": {"zones": '{"n1": "a"}'}},
    "operator": {"replicas": 1},
    "networkPolicy": {"callers": [{"namespaceSelector": {}}], "metrics": [{"podSelector": {}}]},
}
# With all that is off by default.
ALERTS: Object = {
    **KMOD,
    "alertmanager": {
        "enabled": True,
        "replicas": 2,
        "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        "labels": {"process_name": "job"},
        "periodMs": 200,
        "namespace": "ops",
        "namespaces": ["shop"],
    },
    "networkPolicy": {"metrics": [{"podSelector": {}}]},
}
PERF: Object = {**KMOD, "controller": {"backend": "perf"}}
CLAIM: Object = {**PERF, "store": {"claim": {"size": "100Gi", "storageClassName": "shared"}}}
PRIVILEGED: Object = {**KMOD, "controller": {"privileged": True}, "cli": {"enabled": False}}


class Helm:
    """The command."""

    def __init__(self, binary: Path, folder: Path) -> None:
        self._binary = binary
        self._folder = folder
        self._environment = {"HOME": str(folder)}
        self._rendered: dict[str, list[Object]] = {}

    def __call__(self, *arguments: str, values: Object | None = None, code: int = 0) -> str:
        """What it says, both ways; the exit code must be `code`."""
        given: list[str] = []
        if values is not None:
            file = self._folder / "values.json"
            file.write_text(json.dumps(values))
            given = ["--values", str(file)]
        command = [str(self._binary), *arguments, *given]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        assert done.returncode == code, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done.stdout + done.stderr if code else done.stdout

    def rendered(self, values: Object) -> list[Object]:
        """The objects that an installation with these values makes, without the CRDs."""
        key = json.dumps(values)
        if key not in self._rendered:
            self._rendered[key] = self.only("", NAMESPACE, values)
        return deepcopy(self._rendered[key])

    def only(self, template: str, namespace: str, values: Object) -> list[Object]:
        """Those of one template; "": all."""
        options = ["--namespace", namespace, "--kube-version", "1.36.3"]
        options += ["--show-only", template] if template else []
        told = self("template", "permille", str(CHART), *options, values=values)
        return [body for body in _read_yaml(told) if body]


def pods(objects: list[Object]) -> dict[str, Object]:
    """The pod template of each workload, by the name of the workload; its claims as its controller adds them."""
    found: dict[str, Object] = {}
    for body in objects:
        if body["kind"] in ("DaemonSet", "Deployment", "StatefulSet"):
            found[body["metadata"]["name"]] = pod = body["spec"]["template"]
            for claim in body["spec"].get("volumeClaimTemplates", []):
                name = claim["metadata"]["name"]
                pod["spec"]["volumes"].append({"name": name, "persistentVolumeClaim": {"claimName": name}})
    return found


def environment(container: Object) -> dict[str, str]:
    """The variables as a kubelet would set them."""
    fields = {
        "status.podIP": "10.1.2.3",
        "spec.nodeName": "node-1",
        "metadata.name": "pod-1",
        "metadata.labels['topology.kubernetes.io/zone']": "east",
    }
    found: dict[str, str] = {}
    for variable in container.get("env", []):
        source = variable.get("valueFrom")
        value = fields[source["fieldRef"]["fieldPath"]] if source else variable["value"]
        for name, earlier in found.items():
            value = value.replace(f"$({name})", earlier)
        found[variable["name"]] = value
    return found
