"""Binaries by build id: fetched once, kept in a local folder, with the separate debug file where there is one."""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import zstandard
from permille.decoder.domain.archive import decompressed, is_lost
from permille.decoder.domain.debug_owner import Owner, checksum_of, owner_of
from permille.decoder.domain.elf_content import ElfContent, elf_content
from permille.decoder.domain.elf_identity import ElfIdentity, file_sha256, identify_elf
from permille.mesh.errors import InvalidArgument, NotFound, PermilleError
from permille.mesh.store import ObjectStore

DEBUG_FOLDER = Path("/usr/lib/debug")
_LEVEL = 3
_CHUNK = 1 << 20
_BY_CONTENT = "binaries/sha256-"
_KEY = re.compile(r"binaries/(sha256-)?[0-9a-f]+")


@dataclass(frozen=True)
class LocalBinary:
    """A binary on this machine; `missing` says why when there is no path."""

    path: Path | None
    debug_path: Path | None = None
    missing: str = ""


@dataclass(frozen=True)
class UploadedBinary:
    """What an upload became; `replaced`: what was there had less.

    `guessed`: only the request says that the debug file is that of the binary.
    """

    key: str
    build_id: str
    size_bytes: int
    existed: bool
    guessed: bool = False
    replaced: bool = False


class BinaryRepository:
    """`binaries/` of the object store, cached in `folder`; this machine's debug files are found as gdb finds them."""

    def __init__(self, store: ObjectStore, folder: Path, *, debug_folder: Path = DEBUG_FOLDER) -> None:
        self._store = store
        self._folder = folder
        self.debug_folder = debug_folder
        self._locks: dict[str, asyncio.Lock] = {}

    async def fetch(self, key: str, mapped_as: str) -> LocalBinary:
        """The binary `binaries/...`, which the program had mapped from the path `mapped_as`.

        What is not in the store or is damaged there comes back as `missing`, with the reason. Raises what the store
        raises when it is away.
        """
        path, reason = await self._cached(key)
        if path is None:
            return LocalBinary(None, missing=reason)
        debug = await self._own_debug(key, path)
        debug = debug or await asyncio.to_thread(self._debug_here, path, mapped_as)
        return LocalBinary(path, debug or await self._guessed(key))

    async def add(self, file: Path, *, debug: bool, of: Collection[str] = ()) -> UploadedBinary:
        """Stores an ELF file under its build id, or its SHA-256 when it has none.

        Again only where what is there is damaged or has less. A program without its contents is a debug file. `of`:
        keys of the binaries of which a debug file may be the one. Raises `InvalidArgument` when it is no ELF, is cut
        off, is a debug file of none of them, or one without a build id to belong to, and `NotFound` for a binary that
        is not there.
        """
        identity = await asyncio.to_thread(identify_elf, file)
        content = await asyncio.to_thread(elf_content, file)
        debug = debug or content.is_debug_file
        if debug and of:
            return await self._add_debug(file, identity, content, await self._owner(file, identity, of))
        if not debug:
            content.require_whole()
        elif not identity.build_id:
            raise InvalidArgument(
                "this debug file has no build id, so no binary can be found for it",
                reason="NO_BUILD_ID",
                help="link the program with -Wl,--build-id before splitting off the debug file",
            )
        key = await self._key_of(file, identity) + (".debug" if debug else "")
        return await self._add(key, file, identity, content, debug=debug)

    async def _add(
        self, key: str, file: Path, identity: ElfIdentity, content: ElfContent, *, debug: bool
    ) -> UploadedBinary:
        size = (await asyncio.to_thread(file.stat)).st_size
        stored = await self._content(key) if await self._is_whole(key) else None
        if stored is not None and not content.adds_to(stored, debug=debug):
            return UploadedBinary(key, identity.build_id, size, existed=True)
        await self._store.put_stream(key, compressed(file))
        return UploadedBinary(key, identity.build_id, size, existed=False, replaced=stored is not None)

    async def _owner(self, file: Path, identity: ElfIdentity, of: Collection[str]) -> Owner:
        binaries = {}
        for key in of:
            path, reason = await self._cached(key) if _KEY.fullmatch(key) else (None, "no binary is called so")
            if path is None:
                raise NotFound(
                    f"{key}: {reason}",
                    reason="BINARY_NOT_FOUND",
                    help="upload the binary before its debug file, and name it as the answer does",
                    metadata={"binary": key},
                )
            binaries[key] = await asyncio.to_thread(_identified, path)
        return await asyncio.to_thread(owner_of, file, identity, binaries)

    async def _add_debug(self, file: Path, identity: ElfIdentity, content: ElfContent, owner: Owner) -> UploadedBinary:
        if not owner.guessed and not owner.key.startswith(_BY_CONTENT):
            return await self._add(f"{owner.key}.debug", file, identity, content, debug=True)
        # A guess gives way to the next one, and what recorders stored by its name alone to the one with the checksum.
        key = f"{owner.key}.guess" if owner.guessed else f"{owner.key}.debug"
        size = (await asyncio.to_thread(file.stat)).st_size
        existed = await self._is_whole(key) and await self._holds(key, file)
        if not existed:
            await self._store.put_stream(key, compressed(file))
        return UploadedBinary(key, identity.build_id, size, existed, owner.guessed)

    async def _holds(self, key: str, file: Path) -> bool:
        digest = hashlib.sha256()
        async for piece in decompressed(self._store, key):
            digest.update(piece)
        return digest.hexdigest() == await asyncio.to_thread(file_sha256, file)

    async def known(self, build_id: str, *, debug: bool) -> UploadedBinary | None:
        """The binary or debug file with the build id, where it is there and none could have more.

        Its size is that of the stored object.
        """
        key = f"binaries/{build_id}" + (".debug" if debug else "")
        stored = await self._content(key) if build_id.isalnum() else None
        if stored is None or not stored.has_all(debug=debug):
            return None
        return UploadedBinary(key, build_id, (await self._store.head(key)).size_bytes, existed=True)

    async def _content(self, key: str) -> ElfContent | None:
        """None: nothing is there, or nothing that can be read."""
        path, _ = await self._cached(key)
        try:
            return None if path is None else await asyncio.to_thread(elf_content, path)
        except InvalidArgument:
            return None

    async def _is_whole(self, key: str) -> bool:
        try:
            async for _ in decompressed(self._store, key):
                pass
        except PermilleError as error:
            if not is_lost(error):
                raise
            return False
        return True

    async def _key_of(self, file: Path, identity: ElfIdentity) -> str:
        if identity.build_id:
            return f"binaries/{identity.build_id}"
        return f"binaries/sha256-{await asyncio.to_thread(file_sha256, file)}"

    async def _own_debug(self, key: str, binary: Path) -> Path | None:
        """What is stored as the debug file of a binary, where nothing contradicts it."""
        debug, _ = await self._cached(f"{key}.debug")
        if debug is None or not key.startswith(_BY_CONTENT):
            return debug
        return debug if await asyncio.to_thread(_has_checksum, debug, binary) else None

    async def _guessed(self, key: str) -> Path | None:
        """The debug file that nothing contradicts: the last one that was given for the binary."""
        return (await self._cached(f"{key}.guess"))[0]

    async def _cached(self, key: str) -> tuple[Path | None, str]:
        async with self._locks.setdefault(key, asyncio.Lock()):
            try:
                # By its content: one that has more may have taken its place, and who has the other one open keeps it.
                version = (await self._store.head(key)).sha256[:16]
                path = self._folder / f"{key.removeprefix('binaries/')}-{version}"
                if not await asyncio.to_thread(path.is_file):
                    await self._download(key, path)
            except PermilleError as error:
                if not is_lost(error):
                    raise
                absent = error.reason == "OBJECT_NOT_FOUND"
                return None, "the binary is not in the repository" if absent else error.message
        return path, ""

    async def _download(self, key: str, path: Path) -> None:
        await asyncio.to_thread(self._folder.mkdir, parents=True, exist_ok=True)
        partial = path.with_name(f"{secrets.token_hex(8)}.partial")
        try:
            with await asyncio.to_thread(partial.open, "xb") as file:
                async for piece in decompressed(self._store, key):
                    await asyncio.to_thread(file.write, piece)
            await asyncio.to_thread(partial.replace, path)
        finally:
            await asyncio.to_thread(partial.unlink, missing_ok=True)

    def _debug_here(self, path: Path, mapped_as: str) -> Path | None:
        try:
            identity = _identified(path)
        except InvalidArgument:
            return None
        for candidate in _debug_candidates(identity, Path(mapped_as), self.debug_folder):
            if _belongs(candidate, identity):
                return candidate
        return None


async def compressed(file: Path) -> AsyncIterator[bytes]:
    """The file's content as one zstd frame, in pieces."""
    compressor = zstandard.ZstdCompressor(_LEVEL).compressobj()
    with await asyncio.to_thread(file.open, "rb") as source:
        while piece := await asyncio.to_thread(source.read, _CHUNK):
            packed = await asyncio.to_thread(compressor.compress, piece)
            if packed:
                yield packed
    yield compressor.flush()


def _identified(path: Path) -> ElfIdentity:
    """As `identify_elf`, once for each file."""
    stat = path.stat()
    return _identified_as(path, stat.st_ino, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=1024)
def _identified_as(path: Path, *_stamp: int) -> ElfIdentity:
    return identify_elf(path)


def _has_checksum(debug: Path, binary: Path) -> bool:
    try:
        return _checksum_of(debug) == _identified(binary).debug_checksum
    except InvalidArgument:
        return False


@lru_cache(maxsize=1024)
def _checksum_of(path: Path) -> int:
    # A path of the cache has one content.
    return checksum_of(path)


def _debug_candidates(identity: ElfIdentity, mapped_as: Path, debug_folder: Path) -> list[Path]:
    """In the order of GDB's manual, "Debugging Information in Separate Files"."""
    found = []
    if identity.build_id:
        found.append(debug_folder / ".build-id" / identity.build_id[:2] / f"{identity.build_id[2:]}.debug")
    if identity.debug_link and mapped_as.is_absolute():
        folder = mapped_as.parent
        found += [folder / identity.debug_link, folder / ".debug" / identity.debug_link]
        found.append(debug_folder / folder.relative_to("/") / identity.debug_link)
    return found


def _belongs(candidate: Path, identity: ElfIdentity) -> bool:
    # The path is from the machine that recorded: here it may be another version, the stripped file itself, in a folder
    # that root alone may look into, or no path at all.
    try:
        if not candidate.is_file():
            return False
        found = _identified(candidate)
    except (InvalidArgument, OSError):
        return False
    return bool(identity.build_id) and found.build_id == identity.build_id and found.debug_link == ""
