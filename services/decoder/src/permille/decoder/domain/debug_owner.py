"""Which of some binaries a separate debug file belongs to."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from permille.decoder.domain.elf_identity import ElfIdentity
from permille.mesh.errors import InvalidArgument

_CHUNK = 1 << 20


@dataclass(frozen=True)
class Owner:
    """The key of the binary; `guessed`: nothing but that they were given together says so."""

    key: str
    guessed: bool = False


def owner_of(debug: Path, identity: ElfIdentity, binaries: Mapping[str, ElfIdentity]) -> Owner:
    """By build id; where one of both has none by the checksum in .gnu_debuglink, else it is a guess.

    As gdb tells it (GDB manual, "Debugging Information in Separate Files"). `identity`: of the debug file. Raises
    `InvalidArgument` where it belongs to none of them, or may belong to several.
    """
    for key, binary in binaries.items():
        if binary.build_id and binary.build_id == identity.build_id:
            return Owner(key)
    others = {key: one for key, one in binaries.items() if not (one.build_id and identity.build_id)}
    checksum = checksum_of(debug) if any(one.debug_checksum is not None for one in others.values()) else None
    for key, binary in others.items():
        if checksum is not None and binary.debug_checksum == checksum:
            return Owner(key)
    guesses = [key for key, binary in others.items() if binary.debug_checksum is None]
    if len(guesses) == 1:
        return Owner(guesses[0], guessed=True)
    raise _several(guesses) if guesses else _of_another(identity, checksum, binaries)


def checksum_of(file: Path) -> int:
    """The CRC that a .gnu_debuglink has of it."""
    checksum = 0
    with file.open("rb") as opened:
        while piece := opened.read(_CHUNK):
            checksum = zlib.crc32(piece, checksum)
    return checksum


def _of_another(identity: ElfIdentity, checksum: int | None, binaries: Mapping[str, ElfIdentity]) -> InvalidArgument:
    own = f"build id {identity.build_id}" if identity.build_id else "no build id"
    if checksum is not None:
        own += f" and the checksum {checksum:08x}"
    wanted = "; ".join(_wanted(key, binary, checksum) for key, binary in binaries.items())
    return InvalidArgument(
        f"this debug file belongs to another binary: it has {own}; {wanted}",
        reason="DEBUG_FILE_OF_ANOTHER",
        help="give the debug file of the same build: `readelf -n FILE` shows build ids, and a package with debug files"
        " has to be of the very version of the one with the binary; or name the binary that it belongs to",
        metadata={"build_id": identity.build_id, "binaries": ",".join(binaries)},
    )


def _wanted(key: str, binary: ElfIdentity, checksum: int | None) -> str:
    told = f"{key} has build id {binary.build_id}" if binary.build_id else f"{key} has no build id"
    if checksum is not None and binary.debug_checksum is not None:
        told += f" and wants the checksum {binary.debug_checksum:08x} ({binary.debug_link})"
    return told


def _several(guesses: list[str]) -> InvalidArgument:
    return InvalidArgument(
        f"nothing says to which of {', '.join(guesses)} this debug file belongs",
        reason="DEBUG_FILE_OF_SEVERAL",
        help="give it with the one binary that it belongs to",
        metadata={"binaries": ",".join(guesses)},
    )
