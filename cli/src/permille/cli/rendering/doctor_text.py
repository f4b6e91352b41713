"""What `permille doctor` says, for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from permille.cli.rendering.table_cell import cell
from permille.cli.rendering.table_layout import Column
from permille.cli.rendering.terminal_text import escaped
from permille.cli.rendering.text_table import TextTable
from rich.console import RenderableType
from rich.text import Text

if TYPE_CHECKING:
    from permille.cli.diagnosis.diagnosis import Diagnosis


def doctor_text(diagnosis: Diagnosis) -> Iterator[RenderableType]:
    """The machine, the mesh, what can be recorded now, the verdict."""
    yield _machine(diagnosis)
    yield ""
    yield from _mesh(diagnosis)
    yield ""
    if diagnosis.can_record:
        yield cell("This machine can record.", "bold green")
    else:
        missing = ", ".join(check.name for check in diagnosis.checks if check.needed and not check.available)
        yield cell(f"This machine cannot record yet; missing: {missing}", "bold red")


def _machine(diagnosis: Diagnosis) -> TextTable:
    table = TextTable(
        Column("THIS MACHINE"),
        Column(""),
        Column("FOUND", least=20),
        Column("COMMAND THAT FIXES IT", least=20),
        head_style="bold",
    )
    for check in diagnosis.checks:
        state = cell("yes", "green") if check.available else cell("no", "bold red" if check.needed else "yellow")
        table.add_row(cell(check.name), state, cell(check.detail), cell(check.fix))
    return table


def _mesh(diagnosis: Diagnosis) -> Iterator[RenderableType]:
    mesh = diagnosis.mesh
    if mesh.up_pid:
        yield cell(f"permille up runs here (pid {mesh.up_pid})")
    if mesh.error is not None:
        yield Text(f"mesh: {escaped(mesh.error.message)}" + (f"\n  {mesh.error.help}" if mesh.error.help else ""))
    if mesh.services:
        columns = map(Column, ("SERVICE", "INSTANCE", "ADDRESS", "STATE"))
        table = TextTable(*columns, head_style="bold")
        for service in mesh.services:
            state = cell("healthy", "green") if service.healthy else cell("does not answer", "red")
            table.add_row(
                service.service,
                service.instance,
                service.address,
                state if service.address else cell("not running", "red"),
            )
        yield table
    if mesh.node is not None:
        processes = mesh.node.processes
        yield cell("recordable now: " + ("" if processes else "nothing; permille run -- CMD starts a program"))
        for process in processes:
            busy = f"  recorded by {process.session}" if process.session else ""
            yield cell(f"  pid {process.pid}  {process.name}  {process.threads} threads{busy}")
