"""The operator as a process that a kubelet keeps."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.kubernetes.asked_mesh import AskedMesh
from tests.processes import BIN, Process

# As in its image, where the user has no name; what it reads belongs to the one who runs the tests.
_NAMELESS = ("setpriv", "--reuid=65532", "--clear-groups", "--inh-caps=+dac_override", "--ambient-caps=+dac_override")
_NAMES = ("LOGNAME", "USER", "LNAME", "USERNAME")


@dataclass
class Operator:
    """`permille-operator` as the service account that deploy/ gives it."""

    mesh: AskedMesh
    kubeconfig: Path
    process: Process | None = None
    variables: dict[str, str] = field(default_factory=dict)
    _keeper: threading.Thread | None = None

    def start(self) -> None:
        """Begins; it may take a moment until it leads.

        A kubelet starts it again when it ends by an error, as it does when a busy machine has let its lease go.
        """
        self._begin()
        self._keeper = threading.Thread(target=self._keep)
        self._keeper.start()

    def kill(self) -> None:
        """kill -9; nobody starts it again."""
        while self.process is not None and self._keeper is not None and self._keeper.is_alive():
            self.process.kill()
            self._keeper.join(0.1)

    @contextmanager
    def having(self, **settings: str) -> Iterator[None]:
        """Another one in its place, with `PERMILLE_OPERATOR_…` of its own."""
        before = self.variables
        self._again({f"PERMILLE_OPERATOR_{name}": value for name, value in settings.items()})
        try:
            yield
        finally:
            self._again(before)

    def _again(self, variables: dict[str, str]) -> None:
        self.kill()
        self.variables = variables
        self.start()

    def _begin(self) -> None:
        environment = {
            **self.mesh.environment,
            "KUBECONFIG": str(self.kubeconfig),
            "PERMILLE_LEASE_TTL_S": "5",
            "PERMILLE_METRICS": "off",
            **self.variables,
        }
        environment = {name: value for name, value in environment.items() if name not in _NAMES}
        with self.log.open("a") as log:
            command = [*(_NAMELESS if os.geteuid() == 0 else ()), BIN / "permille-operator"]
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, text=True)

    def _keep(self) -> None:
        while self.process is not None and self.process.wait() == 1:
            self._begin()

    @property
    def log(self) -> Path:
        """What all of its lives wrote."""
        return self.mesh.state / "operator.log"
