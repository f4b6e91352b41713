"""pprof's profile (github.com/google/pprof, proto/profile.proto), gzip compressed, as pprof wants it."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

from permille.api.decoder.v1 import profile_pb2
from permille.decoder.domain.call_tree import call_tree
from permille.decoder.domain.inlined_chain import Chain
from permille.decoder.domain.inlined_shares import divided
from permille.decoder.domain.session_rows import Function, SessionRows

_UNSIGNED = (1 << 64) - 1
# Of stacks in one part.
_LEVELS_AT_ONCE = 1 << 18


def pprof(rows: SessionRows) -> Iterator[bytes]:
    """One sample for each call stack of a thread: calls, instructions and ns of the innermost function itself.

    Where inlined functions are known, it is divided among the locations that they make.
    """
    # 16: with gzip's header, which has no time in it here, so that equal profiles are equal files.
    compressor = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    for part in profile_parts(rows):
        yield compressor.compress(part.SerializeToString())
    yield compressor.flush()


def profile_parts(rows: SessionRows) -> Iterator[profile_pb2.Profile]:
    """Messages that are the profile when they stand one behind the other: whole, it may be larger than memory."""
    texts = _Texts()
    head = _head(rows, texts)
    yield head
    locations = _Inlined(head, texts)
    threads = rows.threads()
    for thread, calls, inlined in zip(threads, rows.calls(threads), rows.inlined(threads), strict=True):
        name = texts.number(thread.title)
        part, levels = profile_pb2.Profile(), 0
        for stack, node in rows.until_interrupted(call_tree(calls).stacks()):
            callers = [number + 1 for number in reversed(stack[:-1])]
            for share in divided(node, inlined.get(node.function, ())):
                value = [share.calls, share.self_instructions, share.self_ns]
                if not share.chain or any(value):
                    innermost = locations.number(part, node.function + 1, share.chain)
                    sample = part.sample.add(location_id=[innermost, *callers], value=value)
                    sample.label.add(key=texts.number("thread"), str=name)
                    sample.label.add(key=texts.number("tid"), num=thread.tid)
                    levels += len(stack)
            if levels >= _LEVELS_AT_ONCE:
                yield part
                part, levels = profile_pb2.Profile(), 0
        yield part
    yield profile_pb2.Profile(string_table=texts.all)


def _head(rows: SessionRows, texts: _Texts) -> profile_pb2.Profile:
    """What samples have, and all functions with their locations."""
    profile = profile_pb2.Profile()
    for kind, unit in (("calls", "count"), ("instructions", "count"), ("time", "nanoseconds")):
        profile.sample_type.add(type=texts.number(kind), unit=texts.number(unit))
    profile.default_sample_type = texts.number("time")
    profile.time_nanos = rows.session["start_ns"]
    profile.duration_nanos = rows.session["end_ns"] - rows.session["start_ns"]
    functions = rows.functions()
    mappings = _mappings(functions.values(), rows.session["target"])
    for (module, build_id), identity in mappings.items():
        told = {"filename": texts.number(module or "?"), "build_id": texts.number(build_id)}
        profile.mapping.add(id=identity, has_functions=True, **told)
    for number, function in functions.items():
        mapping = mappings[function.module, function.build_id]
        file, name = texts.number(function.file), texts.number(function.name)
        profile.function.add(id=number + 1, name=name, system_name=name, filename=file, start_line=function.line)
        location = profile.location.add(id=number + 1, mapping_id=mapping, address=function.address & _UNSIGNED)
        location.line.add(function_id=number + 1, line=function.line)
    return profile


def _mappings(functions: Iterable[Function], target: str) -> dict[tuple[str, str], int]:
    """By module and build id; the first is the program, as whoever reads a profile takes it for (profile.proto)."""

    def rank(mapping: tuple[str, str]) -> tuple[bool, bool, bool]:
        module, _ = mapping
        name = module.rpartition("/")[2]
        # A target may be a group of processes, and no file's name.
        return name != target, not module or module.startswith("["), ".so" in name

    found = dict.fromkeys((function.module, function.build_id) for function in functions)
    return {mapping: number for number, mapping in enumerate(sorted(found, key=rank), 1)}


class _Inlined:
    """Locations of code that was inlined into functions, whose own ones are in `head`."""

    def __init__(self, head: profile_pb2.Profile, texts: _Texts) -> None:
        self._texts = texts
        self._own = {location.id: location for location in head.location}
        self._next_location = self._next_function = max(self._own, default=0) + 1
        self._locations: dict[tuple[int, Chain], int] = {}
        self._functions: dict[str, int] = {}

    def number(self, part: profile_pb2.Profile, own: int, chain: Chain) -> int:
        """The location of `chain` in the function whose own one is given; a new one comes into `part`."""
        if not chain:
            return own
        known = self._locations.get((own, chain))
        if known is not None:
            return known
        number = self._locations[own, chain] = self._next_location
        self._next_location += 1
        outermost = self._own[own]
        location = part.location.add(id=number, mapping_id=outermost.mapping_id, address=outermost.address)
        # The innermost first; lines of inlined code are not in the tables.
        for name in reversed(chain):
            location.line.add(function_id=self._function(part, name))
        location.line.extend(outermost.line)
        return number

    def _function(self, part: profile_pb2.Profile, name: str) -> int:
        if name not in self._functions:
            self._functions[name] = self._next_function
            text = self._texts.number(name)
            part.function.add(id=self._next_function, name=text, system_name=text)
            self._next_function += 1
        return self._functions[name]


class _Texts:
    """The string table: the first is empty."""

    def __init__(self) -> None:
        self._numbers = {"": 0}

    def number(self, text: str) -> int:
        return self._numbers.setdefault(text, len(self._numbers))

    @property
    def all(self) -> list[str]:
        return list(self._numbers)
