"""The node's container runtime: which pods run here, and their labels (Kubernetes' CRI, runtime.v1)."""

from __future__ import annotations

from pathlib import Path

import grpc
import grpc.aio
from permille.api.cri.v1 import cri_pb2 as cri
from permille.controller.domain.targets.label_selector import Pod

# Where containerd, CRI-O and cri-dockerd listen unless they are told otherwise.
SOCKETS = (Path("/run/containerd/containerd.sock"), Path("/run/crio/crio.sock"), Path("/run/cri-dockerd.sock"))
LIST = "/runtime.v1.RuntimeService/ListPodSandbox"
ANSWER_S = 10.0
READY = 0


class RuntimeSilentError(Exception):
    """Why the runtime tells of no pods, for people."""


class ContainerRuntime:
    """Asked through its socket; `socket` None: the one that is there."""

    def __init__(self, socket: Path | None = None) -> None:
        self._socket = socket

    async def pods(self) -> list[Pod]:
        """Those that run. Raises RuntimeSilentError."""
        socket = self._socket or next((path for path in SOCKETS if path.is_socket()), None)
        if socket is None:
            raise RuntimeSilentError("no container runtime has its socket here (controller.runtime_socket)")
        async with grpc.aio.insecure_channel(f"unix://{socket.absolute()}") as channel:
            ask = channel.unary_unary(
                LIST,
                request_serializer=cri.ListPodSandboxRequest.SerializeToString,
                response_deserializer=cri.ListPodSandboxResponse.FromString,
            )
            try:
                answer: cri.ListPodSandboxResponse = await ask(cri.ListPodSandboxRequest(), timeout=ANSWER_S)
            except grpc.aio.AioRpcError as error:
                raise RuntimeSilentError(f"the container runtime at {socket} says: {error.details()}") from None
        return [
            Pod(one.metadata.uid, f"{one.metadata.namespace}/{one.metadata.name}", dict(one.labels))
            for one in answer.items
            if one.state == READY
        ]
