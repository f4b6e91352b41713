from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from permille.controller.domain.thread_usage import cpu_ns, parse_stat, shares


def test_a_name_with_blanks_and_parentheses_does_not_shift_the_fields() -> None:
    fields = "S 1 1 1 0 -1 4194304 100 0 0 0 12 34 0 0 20 0 1 0 5 0 0"
    assert parse_stat(f"42 (a) b (c)) {fields}") == 46


def test_without_schedstat_the_clock_ticks_are_used(tmp_path: Path) -> None:
    task = tmp_path / "9" / "task" / "10"
    task.mkdir(parents=True)
    (task / "stat").write_text("10 (x) S 1 1 1 0 -1 4194304 100 0 0 0 1 2 0 0 20 0 1 0 5 0 0")
    assert cpu_ns(9, tmp_path) == {10: 3 * 1_000_000_000 // os.sysconf("SC_CLK_TCK")}


def test_a_process_that_is_gone_has_no_threads(tmp_path: Path) -> None:
    assert cpu_ns(4_000_000, tmp_path) == {}


def test_the_busy_thread_of_this_process_is_told_from_the_idle_one() -> None:
    tids: dict[str, int] = {}
    end = threading.Event()

    def busy() -> None:
        tids["busy"] = threading.get_native_id()
        while not end.is_set():
            sum(range(1000))

    def idle() -> None:
        tids["idle"] = threading.get_native_id()
        end.wait()

    threads = [threading.Thread(target=target) for target in (busy, idle)]
    for thread in threads:
        thread.start()
    while len(tids) < 2:
        time.sleep(0.01)
    before, begin = cpu_ns(os.getpid()), time.monotonic_ns()
    # On a busy machine it may not run for a while.
    while cpu_ns(os.getpid())[tids["busy"]] < before[tids["busy"]] + 50_000_000:
        time.sleep(0.01)
    used = shares(before, cpu_ns(os.getpid()), time.monotonic_ns() - begin)
    end.set()
    for thread in threads:
        thread.join()
    assert used[tids["busy"]] > used[tids["idle"]]
    assert all(0 <= share <= 1 for share in used.values())


def test_a_thread_born_meanwhile_began_at_nothing_and_one_that_ended_is_gone() -> None:
    assert shares({1: 100, 2: 0}, {2: 30, 3: 40}, 100) == {2: 0.3, 3: 0.4}
