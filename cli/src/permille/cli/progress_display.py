"""Progress on standard error: one moving line on a terminal, elsewhere a line for each stage, nothing for programs."""

from __future__ import annotations

from types import TracebackType

from permille.api.operation.v1 import operation_pb2
from permille.cli.rendering.trace_lines import stage_text
from permille.mesh.errors import PermilleError
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


class ProgressDisplay:
    """A context manager; `tell` and `away` are what `OperationProgress` wants."""

    def __init__(self, console: Console, *, silent: bool) -> None:
        self._console = console
        self._silent = silent
        self._stage = ""
        self._absent = ""
        self._waiting = ""
        self._bar = (
            Progress(
                SpinnerColumn(),
                TextColumn("{task.description}{task.fields[buffers]}"),
                BarColumn(),
                TimeElapsedColumn(),
                console=console,
                transient=True,
            )
            if console.is_terminal and not silent
            else None
        )
        self._task = self._bar.add_task("", total=None, buffers="") if self._bar else None

    def __enter__(self) -> ProgressDisplay:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    @property
    def moves(self) -> bool:
        """Whether it can show what changes several times a second."""
        return self._bar is not None

    def buffers(self, text: str) -> None:
        """How full the trace buffers are, beside the stage in which they are filled."""
        if self._bar and self._task is not None:
            self._bar.update(self._task, buffers=f", {text}" if text else "")

    def tell(self, progress: operation_pb2.Progress) -> None:
        """How far it is now."""
        self._absent = ""
        if self._bar and self._task is not None:
            total = progress.total or None
            self._bar.update(
                self._task, description=stage_text(progress), completed=progress.completed if total else 0, total=total
            )
            if progress.stage != "RECORDING":
                self.buffers("")
        elif progress.stage != self._stage and not self._silent:
            self._console.print(stage_text(progress))
        self._stage = progress.stage
        if progress.waiting and progress.waiting != self._waiting:
            self.trouble(progress.waiting)
        self._waiting = progress.waiting

    def away(self, error: PermilleError) -> None:
        """Nobody answers just now; said once for each reason."""
        if error.message != self._absent and not self._silent:
            self._absent = error.message
            self._console.print(f"waiting: {error.message}", markup=False)

    def trouble(self, text: str) -> None:
        """What hinders the work, which goes on."""
        if not self._silent:
            self._console.print(f"waiting: {text}", markup=False)
