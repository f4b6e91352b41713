"""pprof's profile (github.com/google/pprof, proto/profile.proto), gzip compressed, as pprof wants it."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from permille.api.decoder.v1 import profile_pb2
from permille.decoder.domain.call_tree import call_tree
from permille.decoder.domain.inlined_chain import Chain
from permille.decoder.domain.inlined_shares import divided
from permille.decoder.domain.session_rows import SessionRows

_UNSIGNED = (1 << 64) - 1


def pprof(rows: SessionRows) -> Iterator[bytes]:
    """One sample for each call stack of a thread: calls, instructions and ns of the innermost function itself.

    Where inlined functions are known, it is divided among the locations that they make.
    """
    texts = _Texts()
    profile = profile_pb2.Profile()
    for kind, unit in (("calls", "count"), ("instructions", "count"), ("time", "nanoseconds")):
        profile.sample_type.add(type=texts.number(kind), unit=texts.number(unit))
    profile.default_sample_type = texts.number("time")
    profile.time_nanos = rows.session["start_ns"]
    profile.duration_nanos = rows.session["end_ns"] - rows.session["start_ns"]
    _add_functions(profile, rows, texts)
    locations = _Inlined(profile, texts)
    for thread in rows.threads():
        name = texts.number(thread.title)
        inlined = rows.inlined(thread.segment)
        for stack, node in rows.until_interrupted(call_tree(rows.calls(thread.segment)).stacks()):
            callers = [number + 1 for number in reversed(stack[:-1])]
            for share in divided(node, inlined.get(node.function, ())):
                value = [share.calls, share.self_instructions, share.self_ns]
                if not share.chain or any(value):
                    innermost = locations.number(node.function + 1, share.chain)
                    sample = profile.sample.add(location_id=[innermost, *callers], value=value)
                    sample.label.add(key=texts.number("thread"), str=name)
                    sample.label.add(key=texts.number("tid"), num=thread.tid)
    profile.string_table.extend(texts.all)
    yield _gzip(profile.SerializeToString())


def _add_functions(profile: profile_pb2.Profile, rows: SessionRows, texts: _Texts) -> None:
    mappings: dict[str, int] = {}
    for number, function in rows.functions().items():
        mapping = mappings.setdefault(function.module, len(mappings) + 1)
        file, name = texts.number(function.file), texts.number(function.name)
        profile.function.add(id=number + 1, name=name, system_name=name, filename=file, start_line=function.line)
        location = profile.location.add(id=number + 1, mapping_id=mapping, address=function.address & _UNSIGNED)
        location.line.add(function_id=number + 1, line=function.line)
    for module, identity in mappings.items():
        profile.mapping.add(id=identity, filename=texts.number(module or "?"), has_functions=True)


class _Inlined:
    """Locations of code that was inlined into functions, whose own ones are there already."""

    def __init__(self, profile: profile_pb2.Profile, texts: _Texts) -> None:
        self._profile = profile
        self._texts = texts
        self._own = {location.id: location for location in profile.location}
        self._next_location = self._next_function = max(self._own, default=0) + 1
        self._locations: dict[tuple[int, Chain], int] = {}
        self._functions: dict[str, int] = {}

    def number(self, own: int, chain: Chain) -> int:
        """The location of `chain` in the function whose own one is given."""
        if not chain:
            return own
        known = self._locations.get((own, chain))
        if known is not None:
            return known
        number = self._locations[own, chain] = self._next_location
        self._next_location += 1
        outermost = self._own[own]
        location = self._profile.location.add(id=number, mapping_id=outermost.mapping_id, address=outermost.address)
        # The innermost first; lines of inlined code are not in the tables.
        for name in reversed(chain):
            location.line.add(function_id=self._function(name))
        location.line.extend(outermost.line)
        return number

    def _function(self, name: str) -> int:
        if name not in self._functions:
            self._functions[name] = self._next_function
            text = self._texts.number(name)
            self._profile.function.add(id=self._next_function, name=text, system_name=text)
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


def _gzip(data: bytes) -> bytes:
    # 16: with gzip's header, which has no time in it here, so that equal profiles are equal files.
    compressor = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    return compressor.compress(data) + compressor.flush()
