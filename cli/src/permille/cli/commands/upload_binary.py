"""`permille upload-binary`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from permille.api.decoder.v1 import decoder_pb2
from permille.cli.client import MeshClient, answer, in_mesh
from permille.cli.invocation import Invocation, command
from permille.cli.rendering.units import size
from permille.mesh.elf_magic import ELF_MAGIC
from permille.mesh.errors import InvalidArgument, NotFound, PermilleError, PermissionDenied

app = typer.Typer(rich_markup_mode="rich", add_completion=False)
_PIECE_BYTES = 1 << 20


@app.command("upload-binary")
@command
def upload_binary(
    invocation: Invocation,
    binaries: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="ELF programs or libraries.", readable=False)
    ],
    *,
    debug: Annotated[
        list[Path] | None,
        typer.Option(
            "--debug", metavar="FILE", help="A separate debug file; may be given more than once.", readable=False
        ),
    ] = None,
) -> None:
    """Give the decoder binaries and debug files that it could not get by itself.

    They are kept by build id and used by every later decode; one that has more (symbols, debug information) takes the
    place of one that has less. A debug file has to be that of one of the binaries: by its build id, or where there is
    none by the checksum that the binary has of it (.gnu_debuglink). Debug files are those of Debian's -dbgsym packages
    (below /usr/lib/debug/.build-id) or what `objcopy --only-keep-debug` writes.

    [bold]Example[/bold]: permille upload-binary ./server --debug ./server.debug
    """
    wanted = [(file, False) for file in binaries] + [(file, True) for file in debug or ()]
    for file, _ in wanted:
        _require_elf(file)
    stored = in_mesh(invocation.config, lambda client: _upload_all(client, wanted))
    if invocation.as_json:
        invocation.print_json(
            [
                {
                    "file": str(file),
                    "name": answered.name,
                    "build_id": answered.build_id,
                    "size_bytes": answered.size_bytes,
                    "existed": answered.existed,
                    "guessed": answered.guessed,
                    "replaced": answered.replaced,
                }
                for file, answered in stored
            ]
        )
        return
    for file, answered in stored:
        known = "was there already" if answered.existed else size(answered.size_bytes)
        if answered.replaced:
            known += ", in the place of one that had less"
        guess = ": that it belongs there is a guess, as no build id or checksum says it" if answered.guessed else ""
        invocation.console.print(f"{file} -> {answered.name} ({known}){guess}", markup=False)


async def _upload_all(
    client: MeshClient, wanted: list[tuple[Path, bool]]
) -> list[tuple[Path, decoder_pb2.UploadBinaryResponse]]:
    decoder = await client.decoder()
    stored: list[tuple[Path, decoder_pb2.UploadBinaryResponse]] = []
    binaries: list[str] = []
    for file, debug in wanted:
        try:
            answered = await answer(decoder.UploadBinary(_pieces(file, debug, binaries)))
        except PermilleError as error:
            error.message = f"{file}: {error.message}"
            raise
        stored.append((file, answered))
        if not debug:
            binaries.append(answered.name)
    return stored


async def _pieces(file: Path, debug: bool, binaries: Sequence[str]) -> AsyncIterator[decoder_pb2.UploadBinaryRequest]:
    with await asyncio.to_thread(file.open, "rb") as opened:
        data = await asyncio.to_thread(opened.read, _PIECE_BYTES)
        yield decoder_pb2.UploadBinaryRequest(data=data, debug=debug, of=binaries if debug else ())
        while piece := await asyncio.to_thread(opened.read, _PIECE_BYTES):
            yield decoder_pb2.UploadBinaryRequest(data=piece)


def _require_elf(file: Path) -> None:
    """Before anything is sent: a device has no end."""
    try:
        if file.exists() and not file.is_file():
            raise _no_elf(file, "it is a folder" if file.is_dir() else "it is a device or a pipe")
        with file.open("rb") as opened:
            if opened.read(len(ELF_MAGIC)) != ELF_MAGIC:
                raise _no_elf(file, "it begins otherwise")
    except OSError as error:
        kind = PermissionDenied if isinstance(error, PermissionError) else NotFound
        raise kind(
            f"{file} cannot be read: {error.strerror}",
            reason="FILE_UNREADABLE",
            help="check the path and its permissions",
            metadata={"file": str(file)},
        ) from None


def _no_elf(file: Path, why: str) -> InvalidArgument:
    return InvalidArgument(
        f"{file} is no ELF file: {why}",
        reason="NOT_AN_ELF",
        help="give the file of a program or a library, or what `objcopy --only-keep-debug` wrote",
        metadata={"file": str(file)},
    )
