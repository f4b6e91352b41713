"""Receiving a binary, piece by piece."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

from permille.api.decoder.v1 import decoder_pb2
from permille.decoder.domain.binary_repository import BinaryRepository, UploadedBinary
from permille.decoder.domain.elf_identity import no_elf
from permille.decoder.domain.scratch_room import room_in
from permille.mesh.elf_magic import ELF_MAGIC
from permille.mesh.errors import InvalidArgument

_MOST_BYTES = 8 << 30


class BinaryUpload:
    """Keeps what comes in `scratch` until it is whole."""

    def __init__(self, binaries: BinaryRepository, scratch: Path) -> None:
        self._binaries = binaries
        self._scratch = scratch

    async def receive(
        self, requests: AsyncIterator[decoder_pb2.UploadBinaryRequest]
    ) -> decoder_pb2.UploadBinaryResponse:
        """Stores a file. Raises `InvalidArgument` for nothing, too much, or what is no ELF file.

        And for a debug file of none of the binaries that are named, `NotFound` where one of them is not there, and
        `ResourceExhausted` without room for it here or in the store.
        """
        with room_in(self._scratch):
            return await self._received(requests)

    async def _received(
        self, requests: AsyncIterator[decoder_pb2.UploadBinaryRequest]
    ) -> decoder_pb2.UploadBinaryResponse:
        await asyncio.to_thread(self._scratch.mkdir, parents=True, exist_ok=True)
        # Left by itself it stays where what is not yet written finds no room.
        with closing(tempfile.NamedTemporaryFile(dir=self._scratch, prefix="upload-")) as file:
            size, debug, head = 0, False, b""
            of: list[str] = []
            async for request in requests:
                known = await self._binaries.known(request.build_id, debug=request.debug) if request.build_id else None
                if known is not None:
                    return _response(known)
                debug = debug or request.debug
                of += request.of
                head += request.data[: len(ELF_MAGIC) - len(head)]
                if not ELF_MAGIC.startswith(head):
                    raise no_elf(f"this is no ELF file: it begins with {head!r}")
                size += len(request.data)
                if size > _MOST_BYTES:
                    raise InvalidArgument(
                        f"the file is larger than {_MOST_BYTES >> 30} GiB",
                        reason="BINARY_TOO_LARGE",
                        help="strip it (objcopy --strip-debug) and upload the debug file separately",
                    )
                await asyncio.to_thread(file.write, request.data)
            await asyncio.to_thread(file.flush)
            added = await self._binaries.add(Path(file.name), debug=debug, of=of)
        return _response(added)


def _response(binary: UploadedBinary) -> decoder_pb2.UploadBinaryResponse:
    return decoder_pb2.UploadBinaryResponse(
        name=binary.key,
        build_id=binary.build_id,
        size_bytes=binary.size_bytes,
        existed=binary.existed,
        guessed=binary.guessed,
        replaced=binary.replaced,
    )
