"""pprof's profile (github.com/google/pprof, proto/profile.proto), gzip compressed, as pprof wants it."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from permille.api.decoder.v1 import profile_pb2
from permille.decoder.domain.call_tree import call_tree
from permille.decoder.domain.session_rows import SessionRows

_UNSIGNED = (1 << 64) - 1


def pprof(rows: SessionRows) -> Iterator[bytes]:
    """One sample for each call stack of a thread: calls, instructions and ns of the innermost function itself."""
    texts = _Texts()
    profile = profile_pb2.Profile()
    for kind, unit in (("calls", "count"), ("instructions", "count"), ("time", "nanoseconds")):
        profile.sample_type.add(type=texts.number(kind), unit=texts.number(unit))
    profile.default_sample_type = texts.number("time")
    profile.time_nanos = rows.session["start_ns"]
    profile.duration_nanos = rows.session["end_ns"] - rows.session["start_ns"]
    _add_functions(profile, rows, texts)
    for thread in rows.threads():
        name = texts.number(thread.title)
        for stack, node in call_tree(rows.calls(thread.segment)).stacks():
            sample = profile.sample.add(
                location_id=[number + 1 for number in reversed(stack)],
                value=[node.calls, node.self_instructions, max(node.self_ns, 0)],
            )
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
