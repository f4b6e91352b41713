"""`permille certs`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from permille.cli.invocation import Invocation, command
from permille.mesh import certs
from permille.mesh.auth import Role
from permille.mesh.certs import Issued

app = typer.Typer(
    rich_markup_mode="rich",
    add_completion=False,
    no_args_is_help=True,
    help="""Create certificates for a mesh of several machines, where every call is mutual TLS.

    First an authority, then one certificate for the services of each node, then one for each person or system.
    Settings: tls_ca, tls_cert and tls_key, also as PERMILLE_TLS_CA, PERMILLE_TLS_CERT and PERMILLE_TLS_KEY.
    """,
)
_SERVICES = ("allocator", "controller", "coverage", "decoder")
_Folder = Annotated[Path, typer.Option("--folder", "-d", metavar="FOLDER", help="Where the authority is.")]
_Days = Annotated[int, typer.Option(min=1, max=3650, help="Valid for so many days.")]


@app.command()
@command
def authority(
    invocation: Invocation,
    *,
    folder: _Folder = Path("certs"),
    name: Annotated[str, typer.Option(help="Whose authority it is.")] = "permille",
    days: _Days = 3650,
) -> None:
    """Create an authority: ca.crt for everybody, ca.key for nobody else."""
    _told(invocation, certs.create_authority(folder, name=name, days=days))


@app.command()
@command
def service(
    invocation: Invocation,
    node: Annotated[str, typer.Argument(metavar="NODE", help="The machine, as its setting `node` says.")],
    *,
    folder: _Folder = Path("certs"),
    host: Annotated[
        list[str] | None, typer.Option(metavar="HOST", help="A name or address it is reached at; may be repeated.")
    ] = None,
    services: Annotated[
        list[str] | None, typer.Option("--service", metavar="NAME", help="Only these services. Default: all.")
    ] = None,
    days: _Days = 365,
) -> None:
    """Issue the certificate of the services of one node (role agent).

    [bold]Example[/bold]: permille certs service n1 --host n1.example.org
    """
    _told(
        invocation, certs.issue_service(folder, services or _SERVICES, node=node, hosts=host or (), days=days), folder
    )


@app.command()
@command
def user(
    invocation: Invocation,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A person or a system.")],
    *,
    role: Annotated[list[Role], typer.Option(help="What it may do; may be repeated.")],
    folder: _Folder = Path("certs"),
    days: _Days = 365,
) -> None:
    """Issue the certificate of a person or another system.

    A viewer reads, an operator also records and deletes, an external system starts recordings.

    [bold]Example[/bold]: permille certs user ada --role operator
    """
    _told(invocation, certs.issue_user(folder, name, roles=role, days=days), folder)


def _told(invocation: Invocation, issued: Issued, folder: Path | None = None) -> None:
    if invocation.as_json:
        invocation.print_json({"certificate": str(issued.certificate), "key": str(issued.key)})
        return
    invocation.console.print(f"{issued.certificate}\n{issued.key}", markup=False)
    if folder is not None:
        invocation.notes.print(
            f"use it: PERMILLE_TLS_CA={folder / 'ca.crt'} PERMILLE_TLS_CERT={issued.certificate}"
            f" PERMILLE_TLS_KEY={issued.key}",
            markup=False,
        )
