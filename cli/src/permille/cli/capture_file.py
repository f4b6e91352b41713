"""Recordings of Processor Trace that were made elsewhere: opened by permille.ptcore, with errors as `PermilleError`."""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from permille.cli.option_files import (
    check_file,
    check_folder,
    check_image,
    denied_folder,
    folder_for_file,
    is_denied,
    unreadable,
)
from permille.cli.piped_recording import regular_file
from permille.mesh.errors import (
    DataLoss,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermilleError,
    ResourceExhausted,
)

if TYPE_CHECKING:
    from permille.ptcore import Capture, Categories, Stream

KINDS = (
    "perf.data, an LLDB trace bundle (its folder or trace.json), a session's folder, a Griffin container or raw packets"
)
_WAYS_OUT = {
    "UNKNOWN": f"give {KINDS}",
    "DAMAGED": "copy the file again, whole; what is there of raw packets can be read",
    "PACKED": "unpack it to a file, and give that",
    "DESCRIPTION": "correct the description at the place named",
    "OPTION": "correct what the option says: `--help` of the command tells what it takes",
    "TEMPORARY": "set TMPDIR to a folder with room for all packets of the recording",
}
_RECORDING = re.compile(r"\.(data|griffin)(\.gz|\.zst)?$")
_ERRORS = {"DAMAGED": DataLoss, "TEMPORARY": ResourceExhausted}


@dataclass(frozen=True)
class Given:
    """What the user knows beside the recording: code, the processor, folders with binaries, the kernel."""

    images: Sequence[str] = ()
    cpu: str = ""
    symbols: Sequence[Path] = ()
    timing: str = ""
    sideband: Sequence[Path] = ()
    vmlinux: Path | None = None
    kallsyms: Path | None = None
    kcore: Path | None = None

    def check(self) -> None:
        """Raises `NotFound`, `PermissionDenied`, `InvalidArgument` for files and folders that cannot be meant."""
        for image in self.images:
            check_image(image)
        for folder in self.symbols:
            check_folder("--symbols", folder)
        for file in self.sideband:
            check_file("--sideband", file, "perf's records")
        kernel = (
            ("--vmlinux", self.vmlinux, "the kernel as an ELF file"),
            ("--kallsyms", self.kallsyms, "a copy of /proc/kallsyms"),
            ("--kcore", self.kcore, "a copy of /proc/kcore"),
        )
        for option, given, what in kernel:
            if given is not None:
                check_file(option, given, what)


def open_capture(
    file: Path, given: Given, *, packets_only: bool = False, as_listed: bool = False, beginnings: bool = False
) -> Capture:
    """`packets_only`: nobody asks who ran, and no stream is read for that; `as_listed`: it is found while streams are
    listed; `beginnings`: of a large stream that stands in pieces only the beginning is put together.

    Raises `NotFound`, `PermissionDenied`, `InvalidArgument` for what is no recording and for options that cannot be,
    `DataLoss` for a damaged one, `FailedPrecondition` without the decoder's module, `ResourceExhausted` where a pipe's
    content has no room.
    """
    module = _ptcore()
    known = {
        "images": given.images,
        "cpu": parse_cpu(given.cpu) if given.cpu else None,
        "symbols": given.symbols,
        "timing": parse_timing(given.timing) if given.timing else None,
        "sideband": given.sideband,
        "vmlinux": given.vmlinux,
        "kallsyms": given.kallsyms,
        "kcore": given.kcore,
        "packets_only": packets_only,
        "beginnings": beginnings,
        "as_listed": as_listed,
    }
    given.check()
    try:
        # What is read of it is mapped, or in memory.
        with regular_file(file) as recording:
            return _opened(module, recording, file, known)
    except OSError as error:
        raise _unreadable(Path(error.filename or file), error) from None


def _opened(module: Any, recording: Path, given: Path, known: Mapping[str, Any]) -> Capture:
    try:
        return module.Capture(recording, **known)  # type: ignore[no-any-return]
    except module.CaptureError as error:
        kind, message = error.args
        raise _refusal(kind, message.replace(str(recording), str(given)), given) from None


def read_categories(file: Path | None) -> Categories:
    """The built-in table of function categories and the user's rules.

    Raises as `open_capture`; a line that is no rule is named.
    """
    try:
        kind = file.stat().st_mode if file is not None else 0
        if file is not None and stat.S_ISDIR(kind):
            raise folder_for_file("--categories", file, "rules, one a line")
        if stat.S_ISCHR(kind):
            raise InvalidArgument(
                f"{file} is a device",
                reason="CATEGORIES",
                help="give a file of rules, or a pipe",
                metadata={"file": str(file)},
            )
        return _ptcore().Categories(file)  # type: ignore[no-any-return]
    except OSError as error:
        raise unreadable(Path(error.filename or file or ""), error) from None
    except ValueError as error:
        raise InvalidArgument(
            str(error),
            reason="CATEGORIES",
            help='a rule is `category  pattern [@ binary]`, one a line; see "Categories" in the user guide',
            metadata={"file": str(file)},
        ) from None


def chosen_streams(capture: Capture, file: Path, wanted: Sequence[int], thread: int | None) -> list[Stream]:
    """The streams by number, and those that a thread ran in; all when nothing is asked for.

    Raises `NotFound`, and `InvalidArgument` where there are none at all.
    """
    streams = capture.streams()
    if not streams:
        raise without_packets(capture, file)
    for number in wanted:
        if number >= len(streams):
            raise NotFound(
                f"there is no stream {number}: the recording has {len(streams)}",
                reason="NO_SUCH_STREAM",
                help="`permille pt stat FILE` lists them",
                metadata={"stream": str(number)},
            )
    found = [
        stream
        for stream in streams
        if (not wanted or stream.index in wanted) and (thread is None or _ran_in(stream, thread))
    ]
    if thread is not None and not found:
        raise _no_thread(thread, streams, wanted)
    return found


def without_packets(capture: Capture, file: Path) -> InvalidArgument:
    """The error of a whole file in which nothing is to decode."""
    told = f": {capture.warnings[0]}" if capture.warnings else ""
    return InvalidArgument(
        f"{file} holds no packets of Processor Trace{told}",
        reason="NO_PROCESSOR_TRACE",
        help="give a recording with some, as of `perf record -e intel_pt//u -- CMD`",
        metadata={"file": str(file)},
    )


def _ran_in(stream: Stream, thread: int) -> bool:
    return any(tid == thread for _, tid, _ in stream.threads)


def _no_thread(thread: int, streams: Sequence[Stream], wanted: Sequence[int]) -> NotFound:
    elsewhere = [stream.index for stream in streams if _ran_in(stream, thread)]
    known = sorted({tid for stream in streams for _, tid, _ in stream.threads})
    if elsewhere:
        way_out = f"leave --stream out, or name where it ran: {_streams(elsewhere)}"
    elif known:
        way_out = f"its threads are {_listed(known)}"
    else:
        way_out = "it does not say which threads ran: leave --thread out"
    return NotFound(
        f"thread {thread} did not run in {_streams(sorted(set(wanted))) if elsewhere else 'this recording'}",
        reason="NO_SUCH_THREAD",
        help=way_out,
        metadata={"thread": str(thread)},
    )


def _streams(numbers: Sequence[int]) -> str:
    return f"stream{'s' if len(numbers) > 1 else ''} {_listed(numbers)}"


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:20])) + (f" and {len(numbers) - 20} more" if len(numbers) > 20 else "")


def parse_cpu(text: str) -> tuple[int, int, int]:
    """`6/94/3` or `6/94`: family, model, stepping. Raises `InvalidArgument`."""
    found = re.fullmatch(r"(\d{1,3})/(\d{1,3})(?:/(\d{1,2}))?", text.strip())
    numbers = (int(found[1]), int(found[2]), int(found[3] or 0)) if found else (0, 0, 0)
    if not found or max(numbers) > 255:
        raise InvalidArgument(
            f"{text!r} names no processor",
            reason="CPU",
            help="write family/model/stepping as /proc/cpuinfo has them: --cpu 6/94/3",
            metadata={"value": text},
        )
    return numbers


def parse_timing(text: str) -> tuple[int, tuple[int, int], int]:
    """`MTC,NUM/DEN,RATIO`: MTC frequency, TSC ticks per crystal tick, nominal ratio. Raises `InvalidArgument`."""
    found = re.fullmatch(r"(\d{1,2}),(\d{1,9})/(\d{1,9}),(\d{1,3})", text.strip())
    if not found or int(found[1]) > 15 or int(found[3]) == 0 or int(found[4]) > 255:
        raise InvalidArgument(
            f"{text!r} is no timing",
            reason="TIMING",
            help="write MTC frequency (0 to 15), CPUID leaf 15H's EBX/EAX and nominal ratio: --timing 3,168/2,20",
            metadata={"value": text},
        )
    return int(found[1]), (int(found[2]), int(found[3])), int(found[4])


def _ptcore() -> Any:
    try:
        import permille.ptcore  # noqa: PLC0415 - 4 MB that no other command needs
    except ImportError as error:
        raise FailedPrecondition(
            f"the decoder's module permille.ptcore cannot be loaded: {error}",
            reason="NO_PTCORE",
            help="build it: `make setup`, or pip install ./services/decoder/ptcore",
        ) from None
    return permille.ptcore


def _refusal(kind: str, message: str, file: Path) -> PermilleError:
    error = _ERRORS.get(kind, InvalidArgument)
    return error(
        message, reason=f"CAPTURE_{kind}", help=_WAYS_OUT.get(kind, ""), metadata={"file": str(file), "kind": kind}
    )


def _recordings_in(folder: Path) -> list[Path]:
    """By their names, as their tools give them."""
    return sorted(file for file in folder.iterdir() if file.is_file() and _RECORDING.search(file.name))


def _unreadable(file: Path, error: OSError) -> PermilleError:
    if isinstance(error, IsADirectoryError) and is_denied(file):
        return denied_folder(file)
    if isinstance(error, IsADirectoryError):
        return InvalidArgument(
            f"{file} is a folder without a recording",
            reason="FOLDER",
            help=f"give {inside[0]}" if (inside := _recordings_in(file)) else f"give {KINDS}",
            metadata={"file": str(file)},
        )
    return unreadable(file, error)
