"""What the recorder promises a program and a controller, whatever the program does."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from permille.controller.domain.vpt_layout import Flags, State, Stop

FLAGS = Flags.BRANCH | Flags.TRUTH | Flags.TSC | Flags.MTC | Flags.CYC | Flags.LONG_TNT


def assert_true(recording: Any, deciders: Any) -> int:
    """Both decoders see the truth in every stream; returns the instructions."""
    total = 0
    for name, header, verdict in deciders.verdicts(recording):
        assert verdict.same and verdict.errors == 0, f"{name} {header.index}: {verdict.told}"
        total += verdict.equal
    return total


def test_threads_that_make_no_system_call_and_block_all_signals_are_reached(lab: Any, deciders: Any) -> None:
    with lab.run(lab.programs / "spin", "2") as target:
        lab.wait(lambda: threads(target) == 3, "the threads")
        for _ in range(3):
            recording = target.record_some(FLAGS, threads=2)
            assert len(recording.streams()) == 2
            assert assert_true(recording, deciders) > 0
            target.release()


def test_the_end_does_not_wait_for_a_thread_that_stands_still(lab: Any, deciders: Any) -> None:
    """Wherever it stands, it writes nothing any more into what the controller reads; often that is in the recorder."""
    revoked = 0
    with lab.run(lab.programs / "spin", "1") as target:
        lab.wait(lambda: threads(target) == 2, "the thread")
        while revoked < 2:
            target.arm(FLAGS & ~Flags.TRUTH, period_ms=400, streams=2)
            tid = lab.wait(lambda: [one.tid for one in taken(target) if one.tid != target.process.pid], "its stream")[0]
            with lab.stopped(tid):
                recording = target.finished()
                assert recording.page.stop_reason == Stop.PERIOD
                before = contents(recording.folder)
                revoked += recording.page.revoked_threads
                if recording.page.revoked_threads:
                    target.control.page.state = State.IDLE
                    target.arm(FLAGS, streams=1)
                    lab.wait(lambda: target.control.state == State.REFUSED, "the refusal")
                    assert b"stopped inside the recorder" in bytes(target.control.page.error)
            time.sleep(0.05)
            assert contents(recording.folder) == before
            target.release()
        target.record_until(10_000, lambda it: assert_true(it, deciders), FLAGS, period_ms=100)


def test_a_stop_request_ends_a_session_early(lab: Any, deciders: Any) -> None:
    with lab.busy("python") as target:
        target.arm(FLAGS, period_ms=60_000)
        lab.wait(lambda: taken(target), "a stream")
        target.control.page.stop_request = 1
        recording = target.finished()
        assert recording.page.stop_reason == Stop.REQUEST
        assert_true(recording, deciders)


def test_translating_the_program_anew_takes_nothing_of_the_period(lab: Any) -> None:
    with lab.busy("python") as target:

        def longer() -> bool:
            """Where the program had its processor: else nothing was translated while the period lasted."""
            page = target.record(FLAGS & ~Flags.TRUTH, period_ms=20).page
            lasted = page.end.monotonic_ns - page.begin.monotonic_ns
            assert page.stop_reason == Stop.PERIOD and lasted >= 20_000_000
            target.release()
            return bool(lasted > 35_000_000)

        assert any(longer() for _ in range(10))


def test_what_a_killed_program_recorded_is_decoded(lab: Any, deciders: Any) -> None:
    with lab.busy("python") as target:
        target.arm(FLAGS, period_ms=60_000)
        lab.wait(lambda: [one for one in taken(target) if one.written_bytes > 1_000_000], "a megabyte")
        target.process.kill()
        target.process.wait()
        recording = target.as_it_is()
        assert recording.page.state == State.ACTIVE
        assert recording.page.end.tsc > recording.page.begin.tsc
        assert assert_true(recording, deciders) > 0


def test_an_overflow_loses_a_stretch_and_nothing_else(lab: Any, deciders: Any) -> None:
    with lab.busy("gzip") as target:
        recording = target.record(FLAGS, bandwidth=500)
        (header,) = recording.streams()
        assert header.overflows > 0
        for name, _, verdict in deciders.verdicts(recording):
            assert verdict.same and verdict.errors == 0, f"{name}: {verdict.told}"
            assert verdict.gaps == header.overflows
            assert verdict.equal > 0


def test_a_forked_child_is_a_process_of_its_own(lab: Any, deciders: Any) -> None:
    with lab.program("processes") as target:
        target.arm(FLAGS, period_ms=1000)
        child = lab.wait(lambda: [one for pid, one in lab.processes().items() if pid != target.process.pid], "a child")[
            0
        ]
        assert child.page.parent_pid == target.process.pid
        assert child.state == State.IDLE
        assert assert_true(target.finished(), deciders) > 0
        lab.wait(lambda: not [one for one in lab.processes().values() if one.pid == child.pid], "the child's end")


def test_a_child_joins_the_session_that_says_so(lab: Any, deciders: Any) -> None:
    with lab.program("processes") as target:
        target.arm(FLAGS | Flags.FOLLOW, period_ms=1000, size_bytes=4 << 20)
        target.finished()
        children = [page for pid, page in lab.processes().items() if pid != target.process.pid]
        joined = [page for page in children if page.session == "truth"]
        lab.wait(
            lambda: all(page.state in (State.FINISHED, State.IDLE) for page in joined if page.alive()), "their end"
        )
        joined = [page for page in joined if page.state == State.FINISHED]
        assert all(page.page.begin.tsc > target.control.page.begin.tsc for page in joined)
        instructions = [assert_true(target.of(page), deciders) for page in joined]
        assert max(instructions) > 0


def test_a_program_that_becomes_another_leaves_its_recording(lab: Any, deciders: Any) -> None:
    with lab.run("/bin/sh", "-c", "read line; exec /bin/sleep 60", stdin=subprocess.PIPE) as target:
        target.arm(FLAGS, period_ms=60_000)
        lab.wait(lambda: target.control.state == State.ACTIVE, "the recording")
        target.process.stdin.write(b"go on\n")
        target.process.stdin.flush()
        recording = target.finished()
        assert recording.page.stop_reason == Stop.NONE
        assert not target.control.alive()
        assert assert_true(recording, deciders) > 1_000


def test_a_program_that_is_followed_stays_recordable(lab: Any, deciders: Any) -> None:
    script = lab.scratch / "script"
    script.write_text(f"#!/bin/sh -e\nread line; exec {lab.programs}/spin 1\n")
    script.chmod(0o755)
    with lab.run("/usr/bin/env", script, follow=True, stdin=subprocess.PIPE) as target:
        lab.wait(lambda: b"/bin/sh" in cmdline(target) and target.reopened(), "the script")
        target.arm(FLAGS, period_ms=60_000)
        lab.wait(lambda: target.control.state == State.ACTIVE, "the recording")
        target.process.stdin.write(b"go on\n")
        target.process.stdin.flush()
        recording = target.finished()
        lab.wait(lambda: threads(target) == 2, "the program's thread")
        assert recording.page.stop_reason == Stop.NONE
        assert target.control.alive()
        assert Path(f"/proc/{target.process.pid}/comm").read_text() == "spin\n"
        assert assert_true(recording, deciders) > 1_000
        target.release()
        target.record_until(10_000, lambda it: assert_true(it, deciders), FLAGS, period_ms=100)


def test_a_program_of_another_user_who_may_not_record_runs_without(lab: Any) -> None:
    command = f"exec setpriv --reuid=65534 --clear-groups {lab.programs}/spin 60"
    with lab.run("/bin/sh", "-c", command, follow=True) as target:
        lab.wait(lambda: cmdline(target).startswith(b"%b/spin" % bytes(lab.programs)), "the program")
        assert not any(page.alive() for page in lab.processes().values() if page.pid == target.process.pid)


def test_looking_through_the_path_ends_nothing(lab: Any) -> None:
    command = "read line; export PATH=/nonexistent:/:/usr/bin; exec no-such-program || exec /etc/passwd || sleep 60"
    with lab.run("/bin/bash", "-c", f"shopt -s execfail; {command}", stdin=subprocess.PIPE) as target:
        target.arm(FLAGS, period_ms=500)
        lab.wait(lambda: target.control.state == State.ACTIVE, "the recording")
        target.process.stdin.write(b"go on\n")
        target.process.stdin.flush()
        assert target.finished().page.stop_reason == Stop.PERIOD


@pytest.fixture
def small_shm(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", folder], check=True)
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_shared_memory_refuses_the_session_and_names_the_bytes(lab: Any, deciders: Any, small_shm: Path) -> None:
    with lab.at(small_shm).run(lab.programs / "spin", "1") as target:
        target.arm(FLAGS, streams=2, size_bytes=6 << 20)
        lab.wait(lambda: target.control.state == State.REFUSED, "the refusal")
        error = bytes(target.control.page.error).decode()
        assert str(6 << 20) in error and "No space left" in error
        assert not list(target.folder.glob("stream-*"))
        lab.wait(lambda: threads(target) == 2, "the thread")
        assert assert_true(target.record_some(FLAGS, threads=1, streams=1, size_bytes=1 << 20), deciders) > 0


def test_code_that_cannot_be_recorded_ends_the_recording_and_not_the_program(
    lab: Any, deciders: Any, small_shm: Path
) -> None:
    """The memory is filled while the program makes code."""
    with lab.at(small_shm).program("generated") as target:
        lab.wait(lambda: threads(target) == 2, "the thread")
        target.arm(FLAGS & ~Flags.TRUTH, period_ms=3000, streams=3, size_bytes=1 << 20)
        lab.wait(lambda: taken(target), "the stream")
        (small_shm / "filler").write_bytes(bytes(os.statvfs(small_shm).f_bavail * os.statvfs(small_shm).f_bsize))
        (header,) = [one for one in target.finished().streams() if one.name == b"generated"]
        assert header.full and header.lost_blocks > 0
        assert header.written_bytes < header.size_bytes - 10_000
        assert target.process.poll() is None


def taken(target: Any) -> Any:
    """The headers of the streams that a thread has taken so far."""
    return target.as_it_is().streams() if target.control.state == State.ACTIVE else []


def threads(target: Any) -> int:
    """How many threads the program has; of those of the process one is QEMU's and one the recorder's."""
    return len(list(Path(f"/proc/{target.process.pid}/task").iterdir())) - 2


def cmdline(target: Any) -> bytes:
    return Path(f"/proc/{target.process.pid}/cmdline").read_bytes()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("stream-*.pt")} | {
        "sideband": (folder / "sideband.bin").open("rb").read(1 << 20)
    }


def test_signals_do_not_end_what_they_interrupt(lab: Any) -> None:
    """No signal of ours reaches the program: a call that waits goes on waiting."""
    code = "import time, select\nbegin = time.monotonic()\nprint('waits', flush=True)\nselect.select([], [], [], 2)\n"
    code += "print(time.monotonic() - begin, flush=True)"
    with lab.run("/usr/bin/python3", "-c", code, stdout=subprocess.PIPE) as target:
        assert target.process.stdout.readline() == b"waits\n"
        target.record(FLAGS, period_ms=100)
        assert float(target.process.stdout.readline()) > 1
        assert target.process.wait() == 0


def test_a_program_that_ends_leaves_no_folder(lab: Any) -> None:
    with lab.run("/bin/sleep", "0.2") as target:
        assert target.process.wait() == 0
        assert not target.folder.exists()


def test_a_program_that_a_signal_ends_leaves_what_it_recorded(lab: Any, deciders: Any) -> None:
    with lab.busy("python") as target:
        target.arm(FLAGS, period_ms=60_000)
        lab.wait(lambda: [one for one in taken(target) if one.written_bytes > 100_000], "some packets")
        target.process.send_signal(signal.SIGTERM)
        target.process.wait()
        assert assert_true(target.as_it_is(), deciders) > 0
