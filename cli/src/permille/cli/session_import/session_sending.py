"""Sending a session to the decoder: its binaries, its files, its manifest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING

from permille.api.decoder.v1 import decoder_pb2
from permille.cli.client import MeshClient, answer
from permille.cli.session_import.session_content import SessionContent, read_binary

if TYPE_CHECKING:
    from permille.ptcore import ListedBinary

# So many bytes of so many are sent.
Progress = Callable[[int, int], None]


async def send_session(
    client: MeshClient, content: SessionContent, progress: Progress
) -> decoder_pb2.UploadSessionResponse:
    """Raises what the services raise; nothing of the session is there then."""
    decoder = await client.decoder()
    for key, binary in content.binaries.items():
        await answer(decoder.UploadBinary(_binary(binary, debug=False)))
        if binary.debug_bytes and key == f"binaries/{binary.build_id}":
            await answer(decoder.UploadBinary(_binary(binary, debug=True)))
    return await answer(decoder.UploadSession(_files(content, progress)))


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
