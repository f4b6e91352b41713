"""The one error of a back end that this machine cannot offer."""

from __future__ import annotations

from permille.mesh.errors import FailedPrecondition


class NotOnThisMachine(FailedPrecondition):
    """Reason BACKEND_UNAVAILABLE. `because` completes "not on this machine, because …"; `way_out` says what to do."""

    def __init__(self, backend: str, because: str, way_out: str) -> None:
        super().__init__(
            f"{backend}: not on this machine, because {because}",
            reason="BACKEND_UNAVAILABLE",
            help=way_out,
            metadata={"backend": backend},
        )
        self.because = because

    def __reduce__(self) -> tuple[object, ...]:
        return NotOnThisMachine, (self.metadata["backend"], self.because, self.help)
