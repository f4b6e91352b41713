"""Perfetto's trace format: a track for each thread, a slice for each call (perfetto.dev, "TrackEvent")."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb
from permille.decoder.domain.call_nesting import nested_events
from permille.decoder.domain.session_rows import Call, Function, SessionRows, Thread

_PACKETS_AT_ONCE = 4_000
_SEQUENCE = 1
_PACKET_FIELD = b"\x0a"
_CATEGORY = 1


def perfetto(rows: SessionRows) -> Iterator[bytes]:
    """Times in unix ns. Threads without calls have an empty track."""
    functions = rows.functions()
    threads = rows.threads()
    yield _packet(_names(functions))
    for pid in sorted({thread.pid for thread in threads}):
        yield _packet(_process(pid, str(rows.session["target"])))
    located = {number for number, function in functions.items() if function.file}
    iids = {"": [_CATEGORY]} | {name: [_CATEGORY, iid] for name, iid in _categories(functions).items()}
    categories = {number: iids[function.category] for number, function in functions.items()}
    for thread, calls in zip(threads, rows.calls(threads), strict=True):
        yield _packet(_thread(thread))
        yield from _slices(thread, calls, located, categories)


def _names(functions: dict[int, Function]) -> Any:
    packet = _new_packet(pb.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED)
    packet.first_packet_on_sequence = True
    packet.interned_data.event_categories.add(iid=_CATEGORY, name="call")
    for category, iid in _categories(functions).items():
        packet.interned_data.event_categories.add(iid=iid, name=category)
    for number, function in functions.items():
        packet.interned_data.event_names.add(iid=number + 1, name=function.name)
        if function.file:
            packet.interned_data.source_locations.add(
                iid=number + 1, file_name=function.file, function_name=function.name, line_number=function.line
            )
    return packet


def _categories(functions: dict[int, Function]) -> dict[str, int]:
    known = sorted({function.category for function in functions.values()} - {""})
    return {category: _CATEGORY + 1 + number for number, category in enumerate(known)}


def _process(pid: int, name: str) -> Any:
    packet = _new_packet()
    packet.track_descriptor.uuid = _process_track(pid)
    packet.track_descriptor.process.pid = pid
    packet.track_descriptor.process.process_name = name
    return packet


def _thread(thread: Thread) -> Any:
    packet = _new_packet()
    packet.track_descriptor.uuid = _thread_track(thread)
    packet.track_descriptor.parent_uuid = _process_track(thread.pid)
    packet.track_descriptor.thread.pid = thread.pid
    packet.track_descriptor.thread.tid = thread.tid
    packet.track_descriptor.thread.thread_name = thread.name or "thread"
    return packet


def _slices(
    thread: Thread, calls: Iterable[Call], located: Collection[int], categories: Mapping[int, Sequence[int]]
) -> Iterator[bytes]:
    begin, end = _new_packet(), _new_packet()
    for packet, kind in ((begin, pb.TrackEvent.TYPE_SLICE_BEGIN), (end, pb.TrackEvent.TYPE_SLICE_END)):
        packet.track_event.type = kind
        packet.track_event.track_uuid = _thread_track(thread)
    held: list[bytes] = []
    for begins, at_ns, function in nested_events(calls):
        if begins:
            begin.timestamp = at_ns
            begin.track_event.name_iid = function + 1
            begin.track_event.category_iids[:] = categories[function]
            if function in located:
                begin.track_event.source_location_iid = function + 1
            else:
                begin.track_event.ClearField("source_location_iid")
        else:
            end.timestamp = at_ns
        held.append(_packet(begin if begins else end))
        if len(held) == _PACKETS_AT_ONCE:
            yield b"".join(held)
            held.clear()
    yield b"".join(held)


def _new_packet(flags: int = pb.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE) -> Any:
    return pb.TracePacket(trusted_packet_sequence_id=_SEQUENCE, sequence_flags=flags)


def _packet(packet: Any) -> bytes:
    """As an element of the repeated field `packet` of a Trace, so that the pieces are a Trace when joined."""
    body: bytes = packet.SerializeToString()
    return _PACKET_FIELD + _varint(len(body)) + body


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _process_track(pid: int) -> int:
    return 1 << 40 | pid


def _thread_track(thread: Thread) -> int:
    # A thread id may come again; a segment's number does not.
    return 2 << 40 | thread.segment
