"""`permille selftest`."""

from __future__ import annotations

import platform
import re
from pathlib import Path
from typing import Annotated

import typer
from permille.cli import exit_codes
from permille.cli.diagnosis.hardware_selftest import NOTHING_TESTED, HardwareSelftest, source_tree
from permille.cli.invocation import Invocation, command
from permille.mesh.errors import InvalidArgument

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


@app.command()
@command
def selftest(
    invocation: Invocation,
    *,
    hardware: Annotated[
        bool, typer.Option("--hardware", help="This processor's Intel PT: the kernel module, and perf.")
    ] = False,
    kmod: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="The module's source. Default: that of this installation, or DKMS's."),
    ] = None,
    suspend: Annotated[
        bool, typer.Option("--suspend", help="Send the machine to sleep for ten seconds during a recording.")
    ] = False,
) -> None:
    """Test on this machine what only its own hardware can tell: one page, one line a check.

    Needs root, a processor with Intel PT, a compiler and the kernel's headers; what is not possible here is said with
    the reason. The module is built and loaded for the time of the test; one that is loaded is tested as it is. Then
    services of their own record a program whose calls are known, with the module, with perf and with a snapshot of
    perf, and decode it.

    Exit code 1 when a check has failed, 4 when nothing can be tested here.
    """
    if not hardware:
        raise InvalidArgument(
            "there is nothing to test", reason="NO_SELFTEST", help="permille selftest --hardware tests the processor"
        )
    test = HardwareSelftest(source_tree(kmod), suspend=suspend)
    about = {"kernel": platform.release(), "processor": processor_name()}
    if invocation.as_json:
        checks = [{"result": check.result, "text": check.text} for check in test.checks()]
        invocation.print_json({**about, "checks": checks, "passed": test.exit_code == exit_codes.OK})
    else:
        invocation.console.print(f"{about['processor']}, Linux {about['kernel']}", markup=False)
        for check in test.checks():
            invocation.console.print(f"{check.result:<14}{check.text}", markup=False)
    if test.exit_code:
        raise typer.Exit(exit_codes.PRECONDITION if test.exit_code == NOTHING_TESTED else exit_codes.DEFECT)


def processor_name() -> str:
    found = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()
