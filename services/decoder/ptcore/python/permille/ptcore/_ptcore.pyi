from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from typing_extensions import Buffer

class Column(Buffer):
    """Numbers of one width (`B`, `I` or `Q`), read in place."""

    def __init__(self, numbers: Buffer) -> None: ...
    def __len__(self) -> int: ...

Text: TypeAlias = tuple[Column, Column]
"""UTF-8: offsets (`I`, one more than there are rows) and bytes."""

Columns: TypeAlias = dict[str, Column | Text]

class Binary:
    """An ELF file with its functions.

    Raises OSError for a file that cannot be read, ValueError for one that is no ELF file.
    """

    def __init__(
        self,
        path: str | Path,
        debug_path: str | Path | None = None,
        *,
        mapped_as: str | Path | None = None,
        folders: Sequence[str | Path] = (),
    ) -> None:
        """`mapped_as`: what the file was called where it ran, of a copy; `folders`: laid out like /usr/lib/debug."""

    @property
    def build_id(self) -> str: ...
    @property
    def symbol_status(self) -> str: ...
    def functions(self) -> dict[str, Column | Text]: ...
    def line(self, address: int) -> tuple[str, int] | None: ...

class Image:
    """The address space of a process. Changes come in the order of their epochs; ValueError for one that cannot be."""

    def __init__(self) -> None: ...
    def map(self, epoch: int, address: int, size: int, offset: int, binary: Binary, name: str) -> None: ...
    def unmap(self, epoch: int, address: int, size: int) -> None: ...
    def code(self, epoch: int, address: int, data: bytes) -> None: ...
    def missing(self, epoch: int, address: int, size: int, name: str, reason: str) -> None: ...
    def name_generated(self, generated: Generated) -> None:
        """Code of no file has the names of the perf map; before any change."""

    def load(self, epoch: int, generated: Generated, number: int, exact: bool) -> None:
        """What a jitdump loaded. `exact`: code that is known there stays, and gets the name."""

    def absent(self) -> list[str]:
        """A line for each file that debug information refers to and that a decode with `inlined` did not find."""

class Generated:
    """What a process told of the code that it wrote: its perf map, and jitdumps by name. Raises OSError.

    `clock`: two moments, each as TSC ticks and as ns of CLOCK_MONOTONIC.
    """

    def __init__(
        self,
        perf_map: str | Path | None = None,
        dumps: Sequence[tuple[str, str | Path]] = (),
        clock: tuple[tuple[int, int], tuple[int, int]] | None = None,
    ) -> None: ...
    @property
    def notes(self) -> list[str]:
        """What of the files cannot be used."""

    def placed(
        self, changes: Sequence[tuple[int, int, int, int, bool]], by_time: bool, code: Sequence[bytes | None]
    ) -> tuple[list[tuple[int, int, int, int]], list[tuple[int, int]]]:
        """Changes (epoch, TSC, address, size, whether no file backs it) and loads as an image takes them.

        Each (epoch, number of the change, address, size), or for a load -1 - its number; and (TSC, epoch) of those that
        hold from a time on. `by_time`: the recorder looked now and then; otherwise its epochs say exactly what ran.
        `code`: what stood there, by change.
        """

INSTRUCTION_CLASSES: list[str]

class Categories:
    """What functions are for: a table that is built in, and one of the user's (`category  pattern [@ binary]`).

    Raises OSError for a file that cannot be read, ValueError with its name and the line for one that is no table.
    """

    def __init__(self, path: str | Path | None = None) -> None: ...
    def of(self, names: Sequence[str], binaries: Sequence[str]) -> list[str]:
        """The category of each function; `other` where no rule fits."""

class PtConfig:
    """What CPUID, IA32_RTIT_CTL and MSR_PLATFORM_INFO said on the recording machine."""

    def __init__(
        self,
        family: int,
        model: int,
        stepping: int,
        mtc_freq: int,
        tsc_ctc_ratio: tuple[int, int],
        nominal_ratio: int,
        reference_tsc: int = 0,
        without_tnt: bool = False,
        traced: Sequence[tuple[int, int]] = (),
    ) -> None:
        """`reference_tsc`: a TSC of about the time of the recording; packets have only the lowest 56 bits of theirs.
        `without_tnt`: conditional branches were not traced. `traced`: first and last addresses of up to four ranges
        that were, () where all was."""

class Callers:
    """Callers of a stream that were found when calls below them had been taken already. False when there are none."""

    def __bool__(self) -> bool: ...
    def place(self, calls: Buffer, parents: Buffer, depths: Buffer) -> tuple[Column, Column]:
        """The parents (`Q`) and depths (`I`) that calls have in the end, given those that they were handed out with."""

class RowsFile:
    """A Parquet file of any table, row group by row group.

    `columns`: name, type (bool, int32, int64, string) and encoding of each: plain, deltas (of int64), or few, where the
    same numbers come again; texts are a dictionary in any case. `level`: zstd's.
    """

    def __init__(self, columns: Sequence[tuple[str, str, str]], level: int) -> None: ...
    @property
    def rows(self) -> int:
        """Of the row groups that are done."""

    def group(self, rows: int, columns: Sequence[Buffer | tuple[Buffer, Buffer, Buffer | None]]) -> Column:
        """The bytes of the row group. Numbers are `i` or `q`, booleans `B`, 0 or 1.

        Texts: where each begins (`i`) and the end of the last, UTF-8, and which of them each row has (`i`) where not
        those in their order. ValueError for what does not fit.
        """

    def finish(self, told: Mapping[str, str]) -> Column:
        """The last bytes. `told`: what readers find beside the rows."""

class Functions:
    """The functions of many streams, each once, with what the streams add up to and the basic blocks that ran.

    A function is a binary, an address and a name; its place is how many were told before it.
    """

    def __init__(self) -> None: ...
    def add(self, columns: Mapping[str, Column | Text]) -> Column:
        """Functions as `Decoder.decode` hands them out; the place of each (`I`).

        Raises ValueError for a column that is missing and for those of different lengths, TypeError for another width.
        """

    def add_totals(
        self, places: Buffer, sums: Mapping[str, Column | Text], blocks: Mapping[str, Column | Text]
    ) -> None:
        """`Decoded.functions` and `Decoded.blocks` of a stream; `places` (`i`): of its functions.

        Raises as `add` does, and ValueError for a function without a place.
        """

    def keys(self, begin: int) -> list[tuple[str, int, str]]:
        """Binary, address and name of those that have the place `begin` or a later one."""

    def told(self, places: Sequence[int]) -> tuple[list[str], list[str], list[int]]:
        """Names, files and lines of those at `places`."""

    def columns(self) -> dict[str, Column | Text]:
        """All in the order of their places: the columns that they were told by (`module`: the binary), the sums.

        `blocks`: addresses of the different blocks of each, in order; `block_begins`: where those of each begin.
        """

class CallsFile:
    """A Parquet file of calls, in the columns of the table: row group by row group. `level`: zstd's."""

    COLUMNS: list[str]

    def __init__(self, level: int) -> None: ...
    def add(
        self,
        calls: Mapping[str, Column | Text],
        functions: Buffer,
        origin: tuple[int, int, int],
        clock: tuple[int, int, int, float],
        timeline: tuple[Buffer, Buffer],
    ) -> None:
        """Calls of one segment, as `Decoder.decode` hands them out, for the next row group.

        `functions` (`i`): by the segment's numbers of functions the caller's. `origin`: segment, pid, tid. `clock`: the
        ticks in place of those that are not known, ticks and unix ns of one moment, ns a tick. `timeline`: from which
        time on (`Q`, the first 0) on which core (`i`).
        Raises ValueError for a column that is missing and for those that do not fit each other, TypeError for another
        width.
        """

    @property
    def functions(self) -> list[int]:
        """The caller's functions that the next row group names."""

    def group(self, numbers: Sequence[int], names: Sequence[str], files: Sequence[str], lines: Sequence[int]) -> Column:
        """The bytes of the row group. What calls repeat of their functions is given for those of `functions`."""

    def finish(self) -> Column:
        """The last bytes."""

    @property
    def rows(self) -> int:
        """Of all row groups."""

    @property
    def waiting(self) -> int:
        """Rows of the next row group."""

    @property
    def ranges(self) -> tuple[tuple[int, int], tuple[int, int]] | None:
        """Least and greatest `start_ns` and `end_ns` of all row groups."""

class Decoded:
    """What a stream adds up to."""

    def functions(self) -> dict[str, Column | Text]:
        """Totals by function, in the order in which the functions were told; times are TSC ticks."""

    def edges(self) -> dict[str, Column | Text]: ...
    def accesses(self) -> dict[str, Column | Text]:
        """Reads and writes of memory by function (0xFFFFFFFF: a stub's), class (by `INSTRUCTION_CLASSES`), width."""

    def blocks(self) -> dict[str, Column]:
        """Basic blocks that ran, by function and address in the binary's own address space; some more than once.

        One begins where a branch, taken or not, led to; those of stubs are left out.
        """

    def inlined(self) -> dict[str, Column | Text]:
        """Instructions of what was inlined into each function, when that was asked for."""

    @property
    def stats(self) -> dict[str, int]:
        """Of what `decode_threads` decoded without packets, TNT bits and compressed returns: they are nobody's."""

    @property
    def cores(self) -> dict[int, dict[str, int]]:
        """The same by core, but for `calls`, of what `decode_threads` decoded."""

    @property
    def callers(self) -> Callers: ...

class Decoder:
    """Decodes streams of threads of one process, and keeps what it found out about their code from one to the next.

    The image cannot be changed as long as the decoder lives.
    """

    def __init__(self, image: Image, config: PtConfig) -> None: ...
    @property
    def memory_bytes(self) -> int:
        """What is kept between two streams."""

    def decode(
        self,
        data: Buffer,
        epochs: Sequence[tuple[int, int]],
        take: Callable[[Columns, Columns, Columns], object] | None = None,
        *,
        inlined: bool = False,
        timeless: bool = False,
        threads: int = 1,
        appended: int = 0,
        missing: Sequence[int] = (),
    ) -> Decoded:
        """Decodes the stream of one thread without holding the GIL.

        `epochs`: stream offset and the epoch of the image from there on. Whatever cannot be decoded is a row of the
        losses.

        `take` is given calls that are over, functions that these name for the first time, and losses, again and again.
        Times are TSC ticks, 0 when unknown. Numbers of calls (`call`, `parent`; all ones: none) grow in the order in
        which calls began, and have gaps; those of functions count them in the order in which they are told. What
        `take` raises ends the decode. `timeless`: the packets hold no times; instructions are counted instead, one a
        tick.

        `appended`: so many bytes at the end are not the stream's, but stop it where it was cut; no loss counts them.
        `missing`: offsets in front of which packets are missing, in order: the flow ends there, which is a loss.

        `threads` share the work where the stream is long and has times. What is told is the same but for the sizes of
        batches and the order in them; `take` is called by one thread at a time, in the order of the stream.
        """

def block_counts(functions: Buffer, addresses: Buffer, heads: Buffer, begins: Buffer, blocks: Buffer) -> Column:
    """How many different blocks (`Q`) each function has in all rows that tell of it; a row is what one stream told.

    `functions`: number (`i`), `addresses`: begin (`Q`). `heads`: -1 (`i`) of those that know their own end; of the
    others the number of their binary: there a block belongs to the function of all rows that begins last before it.
    `blocks`: addresses (`Q`), `begins`: where those of each row begin (`i`), and the end of the last.
    ValueError for what does not fit.
    """

def decode(
    data: Buffer, image: Image, config: PtConfig, epochs: Sequence[tuple[int, int]], *, inlined: bool = False
) -> Decoded:
    """Decodes a stream whose calls nobody wants."""

def decode_threads(
    cores: Sequence[tuple[Buffer, int, Sequence[tuple[int, int, int, int, int, int]], bool]],
    images: Mapping[int, Image],
    config: PtConfig,
    takes: Mapping[tuple[int, int, int], Callable[[Columns, Columns, Columns], object]] | None = None,
    *,
    switches: Buffer | None = None,
    inlined: bool = False,
    timeless: bool = False,
    threads: int = 1,
    appended: int = 0,
    missing: Mapping[int, Sequence[int]] | None = None,
) -> dict[tuple[int, int, int], Decoded]:
    """Decodes the streams of cores without holding the GIL: what each thread did, by first core, pid and tid.

    `cores`: each with its packets, number, turns, and whether none of its packets are missing. Turns: stream
    offset, pid, tid, epoch of the process's image and of the kernel's from there on, and how often the thread had
    come from another core, and its tid from another process. `images`: by pid, the half of the kernel as 2^32 - 1.
    `takes`: by core, pid and tid, each as `take` of `Decoder.decode`, which has `timeless` too; a thread has the
    one of the core where it first ran. A thread of which nothing is told is left out. `switches`: 24-byte records
    of all cores: calls go on where their thread goes to another core, unless that is not among these or misses
    packets. Without, they end there. `threads`: up to so many share the work on several cores, and may call `takes`
    of different threads at the same time. What is told of a thread does not depend on how many. `appended`: as
    `Decoder.decode` has it, of each stream; `missing`, too, by core. Raises ValueError for a pid without image, and
    for a core that is given twice.
    """

def switch_warnings(switches: bytes) -> list[str]:
    """What is wrong with a session's switch records: numbers that no system has, and what contradicts itself."""

def divide(
    data: Buffer, config: PtConfig, core: int, switches: Buffer, epochs: Mapping[int, Sequence[tuple[int, int]]]
) -> tuple[list[tuple[int, int, int, int, int, int]], int, int, int]:
    """Whose packets the stream of a core holds, on which nothing but user code of some processes was traced.

    `switches`: 24-byte records of any cores. `epochs`: by pid, from which TSC on which epoch of its image holds, in the
    order of times; 0 holds before. The turns as `decode_threads` takes them; how many changes of thread or image there
    were; for how many of them several places were as good, and for how many only clock packets tell.
    """

def instructions(data: Buffer, image: Image, config: PtConfig, epochs: Sequence[tuple[int, int]]) -> Column:
    """The addresses of all instructions in the order in which they ran."""

def packets(data: Buffer) -> list[tuple[int, str]]:
    """Offset and text of every packet; after bytes that are none it goes on at the next PSB."""

class CaptureError(Exception):
    """A recording that cannot be read.

    Its arguments are a kind and a message. Kinds: UNKNOWN (nothing that is known begins like this), DAMAGED,
    PACKED (too large when unpacked), DESCRIPTION (its JSON is wrong), OPTION (an image or another option cannot be),
    TEMPORARY (the temporary folder cannot take what is put there).
    """

class Batches(Iterator[bytes]):
    """Whole lines of UTF-8, many at a time. Listing ends when the iterator is gone.

    Raises what a signal handler raises meanwhile.
    """

    def __next__(self) -> bytes: ...

class Stream:
    """The packets of one thread, or of one core (`core`, else None) and the threads that ran there."""

    index: int
    name: str
    size_bytes: int
    cut: bool
    """Only its beginning is there (`beginnings`)."""
    core: int | None
    threads: list[tuple[int, int, str]]
    """Process, thread, name."""
    lost: list[int]
    """Offsets at which the recorder lost packets."""

class Piece:
    """A part of a stream that is decoded on its own: the bytes from `begin` to `next`, and `tail` behind them."""

    begin: int
    next: int
    tail: bytes
    first_tsc: int
    last_tsc: int
    """0 where no packet tells them."""
    turns: list[tuple[int, int, int, int, int, int]]
    """Offset in the piece, pid, tid, epoch of the process's image and of the kernel's, how often the thread had come
    from another core; the first offset is 0."""
    lost: list[int]
    """Offsets in the piece at which the recorder lost packets."""

class ListedChange:
    """A change of an image in the words of a session's `maps.json`."""

    epoch: int
    event: str
    address: int
    size_bytes: int
    offset: int
    path: str
    binary: int | None
    """Place in `Listed.binaries`."""
    code_offset: int
    code_size: int
    """Of the ELF file that stands in the code file, else 0."""
    missing: str

class ListedBinary:
    """A binary that something was mapped from, and its separate debug file."""

    path: str
    build_id: str
    size_bytes: int
    debug_bytes: int
    def read(self, begin: int, end: int, *, debug: bool = False) -> bytes: ...

class Listed:
    """The code of a capture: changes by pid (the half of the kernel as 2^32 - 1), and the binaries they name."""

    processes: list[tuple[int, list[ListedChange]]]
    binaries: list[ListedBinary]

class Capture:
    """A recording made anywhere, recognised by its content.

    `images`: parts of files that stood in memory, FILE:OFFSET:SIZE:ADDRESS. `cpu`: family, model, stepping. `symbols`:
    folders with binaries of the recorded machine. `sideband`: files of perf records beside packets alone. `timing`: MTC
    frequency, TSC ticks per crystal tick (numerator, denominator) and nominal core to bus ratio. `vmlinux`, `kallsyms`,
    `kcore`: the kernel that ran. `packets_only`: nobody asks who ran, so that no stream is read before it is listed.
    `beginnings`, with one of the others: of a large stream that stands in pieces only the beginning is put together
    (`Stream.cut`); a listing ends behind what is certain of it, and its lines are the first ones of the whole listing.
    `as_listed`: where threads change is found while a stream is listed by `flow` or `calls`, which then warn of what is
    not certain; until then a stream has all threads that may have run. Raises OSError for a file that cannot be read,
    `CaptureError`.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        images: Sequence[str] = (),
        cpu: tuple[int, int, int] | None = None,
        symbols: Sequence[str | Path] = (),
        sideband: Sequence[str | Path] = (),
        timing: tuple[int, tuple[int, int], int] | None = None,
        vmlinux: str | Path | None = None,
        kallsyms: str | Path | None = None,
        kcore: str | Path | None = None,
        packets_only: bool = False,
        beginnings: bool = False,
        as_listed: bool = False,
    ) -> None: ...
    @property
    def kind(self) -> str: ...
    @property
    def cpu(self) -> tuple[int, int, int] | None: ...
    @property
    def warnings(self) -> list[str]: ...
    def absent(self) -> set[str]:
        """A line for each file that debug information refers to and that `calls` with `inlined` did not find."""

    def undebugged(self) -> set[str]:
        """The binaries in which `calls` with `inlined` looked for debug information, and that have none."""

    @property
    def timing(self) -> tuple[int, tuple[int, int], int]:
        """MTC frequency, TSC ticks per crystal tick (numerator, denominator), nominal ratio; zeros where unknown."""

    @property
    def filter(self) -> list[tuple[int, int]]:
        """First and last address of each range that was traced; [] is everything."""

    @property
    def without_tnt(self) -> bool:
        """Conditional branches were not traced."""

    def nanoseconds(self, tsc: int) -> int | None:
        """The time of the recording's own clock; None where nothing relates it to the TSC."""

    def streams(self) -> list[Stream]: ...
    def pieces(self, stream: int, size: int) -> list[Piece]:
        """The stream cut at the first PSB behind each `size` bytes."""

    def read(self, stream: int, begin: int, end: int) -> bytes:
        """Packets of a stream."""

    @property
    def follows_threads(self) -> bool:
        """Whether it is known of all cores which threads were there, and nothing of what they did was overwritten."""

    def switches(self) -> bytes:
        """Switch records of 24 bytes, as session archives hold them, by time."""

    def list_code(self, code: str | Path) -> Listed:
        """Lists the code of all processes; what no binary backs is written to the file. Raises OSError."""

    def stat(self, stream: int, *, flow: bool = True, threads: int = 0, part_bytes: int = 1 << 19) -> dict[str, Any]:
        """Counts of a stream: bytes, packets by kind, TNT bits, times, errors, and of its flow. Releases the GIL.

        `threads` share the stream in parts of about `part_bytes`; 0: as many as there are cores. Counts are the same.
        """

    def dump(self, streams: Sequence[int], *, thread: int | None = None, json: bool = False) -> Batches:
        """A line for each packet; of those written while a thread ran if given."""

    def flow(
        self, streams: Sequence[int], *, blocks: bool = False, thread: int | None = None, json: bool = False
    ) -> Batches:
        """A line for each instruction or block, and for what happened between them; of one thread if given."""

    def calls(
        self,
        streams: Sequence[int],
        *,
        table: bool = False,
        categories: Categories | None = None,
        inlined: bool = False,
        max_depth: int = 0,
        thread: int | None = None,
        json: bool = False,
        threads: int = 0,
    ) -> Batches:
        """A line for each call when it ends, indented by its depth (at most `max_depth` levels; 0: all).

        Or for each function with its category, with `table`. `inlined`: which inlined functions calls stand in, and
        what is inlined into each function. `threads` write the calls; 0: as many as there are cores.
        """
