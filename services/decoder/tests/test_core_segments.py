"""Segments of cores as segments of the threads that ran there."""

from __future__ import annotations

import struct

from permille.decoder.domain.core_segments import by_switches, bytes_by_thread, divided, to_divide, unattributed
from permille.decoder.domain.cores_together import cores_together
from permille.decoder.domain.decode_plan import planned
from permille.decoder.domain.manifest import (
    Clock,
    Manifest,
    PacketOptions,
    Segment,
    StoredFile,
    Switches,
    ThreadName,
)

IN, OUT = 1, 0
FILE = StoredFile(key="k", sha256="")


def manifest(*segments: Segment) -> Manifest:
    return Manifest(
        version=1,
        session="nodes/n/sessions/s",
        session_id="s",
        node="n",
        backend="kmod",
        start_ns=0,
        end_ns=1,
        clock=Clock(tsc0=0, ns0=0, tsc1=1, ns1=1),
        pt=PacketOptions(family=6, model=94, stepping=3),
        segments=segments,
        switches=Switches(key="k", sha256=""),
        maps=FILE,
        code=FILE,
        threads=(ThreadName(tid=71, name="main"),),
    )


def core(index: int, number: int) -> Segment:
    return Segment(
        index=index,
        key=f"segment-{index}",
        kind="core",
        core=number,
        pid=0,
        tid=0,
        size_bytes=1000,
        stored_bytes=100,
        buffer_bytes=4096,
        sha256="",
        first_tsc=15,
        last_tsc=90,
    )


def switches(*records: tuple[int, int, int, int, int]) -> bytes:
    return b"".join(struct.pack("<QIIII", *record) for record in records)


def test_records_of_what_no_system_has_make_no_segments() -> None:
    odd = ((12, 2, 7, 1 << 31, IN), (13, 2, (1 << 32) - 1, 72, IN), (14, 2, 7, 1 << 31, OUT))
    found = divided(manifest(core(0, 2)), switches((10, 2, 7, 71, IN), *odd, (20, 2, 7, 71, OUT))).segments
    assert [(s.pid, s.tid) for s in found] == [(7, 71)]


def test_each_thread_that_was_seen_on_a_core_has_a_segment_of_its_own() -> None:
    found = divided(
        manifest(core(0, 2), core(1, 3)),
        switches((10, 2, 7, 71, IN), (20, 2, 7, 71, OUT), (30, 2, 8, 81, IN), (40, 3, 7, 71, IN), (50, 3, 7, 71, OUT)),
    ).segments
    assert [(s.index, s.key, s.core, s.pid, s.tid, s.thread_name) for s in found] == [
        (0, "segment-0", 2, 7, 71, "main"),
        (1, "segment-0", 2, 8, 81, ""),
        (2, "segment-1", 3, 7, 71, "main"),
    ]
    assert [(s.first_tsc, s.last_tsc) for s in found] == [(15, 20), (30, 90), (40, 50)]
    # The object is counted once.
    assert [(s.size_bytes, s.stored_bytes, s.buffer_bytes) for s in found] == [
        (1000, 100, 4096),
        (0, 0, 0),
        (1000, 100, 4096),
    ]
    assert all(by_switches(s) and not unattributed(s) for s in found)


def test_no_thread_ends_before_it_begins_where_a_snapshot_has_lost_its_beginning() -> None:
    (found, stayed) = divided(
        manifest(core(0, 2)), switches((5, 2, 7, 71, IN), (10, 2, 7, 71, OUT), (12, 2, 8, 81, IN))
    ).segments
    assert (found.tid, found.first_tsc, found.last_tsc) == (71, 10, 10)
    assert (stayed.tid, stayed.first_tsc, stayed.last_tsc) == (81, 15, 90)


def test_a_number_that_another_process_takes_over_is_a_thread_of_its_own() -> None:
    told = manifest(core(0, 2)).model_copy(
        update={"threads": (ThreadName(pid=7, tid=71, name="worker"), ThreadName(pid=71, tid=71, name="server"))}
    )
    found = divided(told, switches((20, 2, 7, 71, IN), (30, 2, 7, 71, OUT), (40, 2, 71, 71, IN))).segments
    assert [(s.pid, s.tid, s.thread_name, s.first_tsc, s.last_tsc) for s in found] == [
        (7, 71, "worker", 20, 30),
        (71, 71, "server", 40, 90),
    ]
    turns = [(0, 7, 71, 0, 0, 0), (100, 71, 71, 0, 0, 1)]
    assert bytes_by_thread(turns, 1000) == {(7, 71): 100, (71, 71): 900}


def test_a_core_without_records_is_nobodys() -> None:
    (found,) = divided(manifest(core(0, 2)), b"").segments
    assert unattributed(found)


def test_segments_of_threads_are_left_as_they_are() -> None:
    thread = Segment(index=0, key="a", pid=7, tid=71, size_bytes=5, sha256="")
    assert not to_divide(manifest(thread))
    assert divided(manifest(thread, core(1, 2)), switches((1, 2, 7, 71, IN))).segments[0] == thread


def test_imported_cores_are_divided_already_also_those_parts_that_have_no_turns_of_their_own() -> None:
    first = core(0, 2).model_copy(update={"tid": 71, "turns": ((0, 7, 71, 0, 0, 0),)})
    second = core(1, 2).model_copy(update={"lost_bytes": 100})
    assert to_divide(manifest(core(0, 2)))
    assert not to_divide(manifest(first, second).model_copy(update={"backend": "imported:perf"}))
    assert not by_switches(first) and not by_switches(second)


def test_the_bytes_of_a_stream_are_those_of_its_turns() -> None:
    turns = [(0, 7, 71, 0, 0, 0), (100, 8, 81, 0, 0, 0), (150, 7, 71, 1, 0, 0)]
    assert bytes_by_thread(turns, 1000) == {(7, 71): 950, (8, 81): 50}


def test_cores_are_decoded_together_when_one_worker_can_and_all_that_they_told_is_there() -> None:
    cores = [core(number, number).model_copy(update={"size_bytes": 64 << 20}) for number in range(4)]
    own = divided(manifest(*cores), switches(*((10 + number, number, 7, 71 + number, IN) for number in range(4))))
    assert cores_together(own)
    assert {len(part) for part in planned(own.segments, 8, cores_together=True)} == {4}
    assert {len(part) for part in planned(own.segments, 8)} == {1}
    large = own.segments[3].model_copy(update={"size_bytes": (64 << 20) + 1})
    assert not cores_together(own.model_copy(update={"segments": (*own.segments[:3], large)}))
    twice = own.segments[3].model_copy(update={"core": 0})
    assert not cores_together(own.model_copy(update={"segments": (*own.segments[:3], twice)}))
    last = own.segments[3].model_copy(update={"overwritten": True})
    assert not cores_together(own.model_copy(update={"segments": (*own.segments[:3], last)}))
    assert not cores_together(manifest(Segment(index=0, key="k", pid=7, tid=71, size_bytes=1, sha256="")))
    assert not cores_together(own.model_copy(update={"switches": Switches(key="k", sha256="", dropped=1)}))
    imported = own.model_copy(update={"backend": "imported:perf.data"})
    # Its streams may be in pieces.
    assert not cores_together(imported)
    assert cores_together(imported.model_copy(update={"follows_threads": True}))
