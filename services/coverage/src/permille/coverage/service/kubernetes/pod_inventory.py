"""Where targets are on Kubernetes: the pods that the API server knows, in the words of the inventory."""

from __future__ import annotations

from permille.coverage.domain.kubernetes.instances import listing
from permille.coverage.domain.node import Listing
from permille.coverage.domain.target import Target
from permille.coverage.service.kubernetes.watched import Watched
from permille.mesh.label_selector import parse, selects


class PodInventory:
    """An `Inventory` of one namespace; `container`: of each pod, "" for its default one."""

    def __init__(self, watched: Watched, namespace: str, container: str = "") -> None:
        self._watched = watched
        self._namespace = namespace
        self._container = container

    async def nodes(self, target: Target) -> Listing:
        """The nodes with the target's running containers: of a pod (`namespace/name`), or of pods by their labels.

        Raises `NotFound` when none is running, `InvalidArgument` for a selector that cannot be, `Unavailable` while the
        API server has not told what there is.
        """
        await self._watched.ready()
        pods = self._watched.pods.of(self._namespace)
        if target.pod:
            namespace, _, name = target.pod.rpartition("/")
            meant = [pods[name]] if name in pods and namespace == self._namespace else []
        else:
            terms = parse(target.selector)
            meant = [pod for pod in pods.values() if selects(terms, pod.labels)]
        zones = self._watched.zones.of("")
        return listing(meant, zones, self._watched.recorded(), container=self._container)
