"""Sending a session to the decoder: its binaries, its files, its manifest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from permille.api.decoder.v1 import decoder_pb2
from permille.cli.client import MeshClient, answer
from permille.cli.patience import Patience
from permille.cli.session_import.session_content import SessionContent, read_binary
from permille.mesh.errors import InvalidArgument, Unavailable

if TYPE_CHECKING:
    from permille.ptcore import ListedBinary

# So many bytes of so many are sent.
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Sent:
    """The session as it is there. `has_more`: binaries came that were not there, or had less; `notes`: what did not."""

    session: decoder_pb2.UploadSessionResponse
    has_more: bool
    notes: list[str]


async def send_session(client: MeshClient, content: SessionContent, progress: Progress, patience: Patience) -> Sent:
    """Begins an upload anew while the decoder is away: what is there already is not stored twice.

    A binary that the decoder does not take is left out. Raises what the services raise; nothing of the session is
    there then.
    """
    has_more, notes = False, []

    async def binary(listed: ListedBinary, *, debug: bool) -> None:
        nonlocal has_more
        decoder = await client.decoder()
        try:
            answered = await answer(decoder.UploadBinary(_binary(listed, debug=debug)))
        except InvalidArgument as error:
            notes.append(f"{listed.path} is left out: {error.message}; {error.help}, and import again")
            return
        has_more = has_more or not answered.existed

    async def session() -> decoder_pb2.UploadSessionResponse:
        decoder = await client.decoder()
        return await answer(decoder.UploadSession(_files(content, progress)))

    await _require_mesh(client)
    for key, listed in content.binaries.items():
        await patience.until_answered(partial(binary, listed, debug=False))
        if listed.debug_bytes and key == f"binaries/{listed.build_id}":
            await patience.until_answered(partial(binary, listed, debug=True))
    return Sent(await patience.until_answered(session), has_more, notes)


async def _require_mesh(client: MeshClient) -> None:
    """Raises `Unavailable` where no etcd is: that is no mesh that comes back, more likely a wrong address."""
    try:
        await client.decoder()
    except Unavailable as error:
        if error.reason != "SERVICE_ABSENT":
            raise


async def _binary(binary: ListedBinary, *, debug: bool) -> AsyncIterator[decoder_pb2.UploadBinaryRequest]:
    request = decoder_pb2.UploadBinaryRequest(debug=debug, build_id=binary.build_id)
    async for data in _pieces(read_binary(binary, debug=debug)):
        request.data = data
        yield request
        request = decoder_pb2.UploadBinaryRequest()


async def _files(content: SessionContent, progress: Progress) -> AsyncIterator[decoder_pb2.UploadSessionRequest]:
    sent, total = 0, content.size_bytes
    session = content.name
    for file, pieces in content.files():
        name = file
        async for data in _pieces(pieces):
            yield decoder_pb2.UploadSessionRequest(session=session, file=name, data=data)
            session = name = ""
            sent += len(data)
            progress(min(sent, total), total)
        if name:
            yield decoder_pb2.UploadSessionRequest(session=session, file=name)
            session = ""


async def _pieces(source: Iterator[bytes]) -> AsyncIterator[bytes]:
    """What is read from a disk, without keeping others waiting; in pieces that fit a message."""
    most = 1 << 20
    while (data := await asyncio.to_thread(next, source, None)) is not None:
        for begin in range(0, len(data), most):
            yield data[begin : begin + most]
