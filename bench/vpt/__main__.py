"""What vpt costs a program: processor time native, on QEMU, with the recorder dormant, and recorded, taken in turns."""

from __future__ import annotations

import os
import random
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from figures import Figure, publish, ratios
from permille import ptcore
from permille.controller.domain import vpt_layout as vpt
from permille.controller.domain.vpt_control import Control
from permille.controller.domain.vpt_recording import VptRecording
from permille.controller.main import PLUGIN
from workload import free_port, wait_for_port

ROUNDS = 5
# Of the main thread; the others hardly run.
STREAM_BYTES = {"gzip": 256 << 20, "redis": 1 << 30}
OTHERS, OTHERS_BYTES = 4, 4 << 20
PERIOD_NS = 600 * 10**9
REQUESTS = 100_000
FLOW = vpt.Flags.BRANCH | vpt.Flags.LONG_TNT
TIMED = FLOW | vpt.Flags.TSC | vpt.Flags.MTC | vpt.Flags.CYC
RECORDED = {"flow": FLOW, "timed": TIMED}
MODES = ("native", "qemu", "dormant", *RECORDED)
WORDS = 1_000_000


@dataclass
class Samples:
    """Of one workload: processor seconds by mode, and what its recorded runs yielded."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: {mode: [] for mode in MODES})
    bytes_per_instruction: dict[str, list[float]] = field(default_factory=lambda: {mode: [] for mode in RECORDED})
    reach_ms: list[float] = field(default_factory=list)


def main() -> None:
    workloads: dict[str, Callable[[Samples, str, Path], None]] = {"gzip": gzip, "redis": redis}
    samples = {name: Samples() for name in workloads}
    with tempfile.TemporaryDirectory(prefix="permille-bench-", dir="/dev/shm") as folder:
        (Path(folder) / "text").write_bytes(text())
        for _ in range(ROUNDS):
            for mode in MODES:
                for name, workload in workloads.items():
                    workload(samples[name], mode, Path(folder))
    publish("vpt", {f"{name}: {what}": one for name, each in samples.items() for what, one in figures(each).items()})


def figures(samples: Samples) -> dict[str, Figure]:
    seconds = samples.seconds
    callback = "a bare callback a block: gzip 3, redis 1.85"
    return {
        "QEMU / native": ratios(seconds["qemu"], seconds["native"]),
        "dormant / QEMU": ratios(seconds["dormant"], seconds["qemu"], "1"),
        "recorded without time / QEMU": ratios(seconds["flow"], seconds["qemu"], callback),
        "recorded with time / QEMU": ratios(seconds["timed"], seconds["qemu"], callback),
        "recorded with time / native": ratios(seconds["timed"], seconds["native"]),
        "trace without time": Figure.of(samples.bytes_per_instruction["flow"], "byte/insn"),
        "trace with time": Figure.of(samples.bytes_per_instruction["timed"], "byte/insn"),
        **({"armed to first packet": Figure.of(samples.reach_ms, "ms")} if samples.reach_ms else {}),
    }


def text() -> bytes:
    """Words that gzip has work with."""
    chance = random.Random(0)
    words = [bytes(chance.choices(b"etaoinshrdlu", k=length % 11 + 1)) for length in range(5000)]
    return b" ".join(chance.choices(words, k=WORDS))


def gzip(samples: Samples, mode: str, folder: Path) -> None:
    """One run from start to end."""
    process = start(mode, folder, "/usr/bin/gzip", "-c", str(folder / "text"))
    control = arm("gzip", mode, folder, process.pid) if mode in RECORDED else None
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    if status:
        raise SystemExit(f"gzip ended with {status} in mode {mode}")
    samples.seconds[mode].append(usage.ru_utime + usage.ru_stime)
    if control is not None:
        harvest(samples, mode, control)


def redis(samples: Samples, mode: str, folder: Path) -> None:
    """A fixed number of requests to a server that runs already."""
    port = free_port()
    process = start(mode, folder, "/usr/bin/redis-server", "--port", str(port), "--save", "")
    try:
        wait_for_port(port, process)
        control = arm("redis", mode, folder, process.pid) if mode in RECORDED else None
        before = cpu_seconds(process.pid)
        load = [
            "redis-benchmark",
            "-p",
            str(port),
            "-c",
            "20",
            "-n",
            str(REQUESTS),
            "-r",
            "10000",
            "-t",
            "set,get",
            "-q",
        ]
        subprocess.run(load, check=True, stdout=subprocess.DEVNULL)
        samples.seconds[mode].append(cpu_seconds(process.pid) - before)
        if control is not None:
            control.page.stop_request = 1
            harvest(samples, mode, control)
            # Between two requests it sleeps: that is not the recorder's time.
            samples.reach_ms.clear()
    finally:
        process.kill()
        process.wait()


def start(mode: str, folder: Path, *command: str) -> subprocess.Popen[str]:
    emulator = {"native": [], "qemu": ["qemu-x86_64"]}.get(
        mode, ["qemu-x86_64", "-plugin", f"{PLUGIN},dir={folder / 'vpt'}"]
    )
    return subprocess.Popen([*emulator, *command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, text=True)


def arm(name: str, mode: str, folder: Path, pid: int) -> Control:
    """Records from now on; returns when the recorder has begun."""
    while True:
        try:
            control = Control(folder / "vpt" / str(pid))
            break
        except (OSError, ValueError):
            time.sleep(0.001)
    page = control.page
    page.session, page.period_ns, page.flags, page.psb_freq, page.mtc_freq = b"bench", PERIOD_NS, RECORDED[mode], 2, 3
    page.planned[0] = vpt.Planned(pid, 0, STREAM_BYTES[name])
    for index in range(1, OTHERS + 1):
        page.planned[index] = vpt.Planned(0, 0, OTHERS_BYTES)
    page.planned_count = 1 + OTHERS
    page.state = vpt.State.ARMED
    while page.state == vpt.State.ARMED:
        time.sleep(0.001)
    return control


def harvest(samples: Samples, mode: str, control: Control) -> None:
    recording = VptRecording(control)
    while not recording.finished():
        time.sleep(0.001)
    streams = recording.streams()
    if any(stream.full for stream in streams):
        raise SystemExit(f"a buffer of {STREAM_BYTES} bytes was too small in mode {mode}")
    image, model = image_of(recording), recording.model()
    config = ptcore.PtConfig(model.family, model.model, model.stepping, 3, model.tsc_ctc_ratio, model.nominal_ratio)
    instructions = 0
    for stream in streams:
        decoded = ptcore.decode(b"".join(recording.packets(stream)), image, config, list(stream.epochs))
        instructions += decoded.stats["instructions"]
    begin = recording.realtime()
    ticks_per_ms = (begin.tsc1 - begin.tsc0) / (begin.ns1 - begin.ns0) * 1e6
    samples.bytes_per_instruction[mode].append(sum(stream.size_bytes for stream in streams) / instructions)
    samples.reach_ms.append((min(stream.first_tsc for stream in streams) - begin.tsc0) / ticks_per_ms)
    recording.release()


def image_of(recording: VptRecording) -> ptcore.Image:
    image = ptcore.Image()
    for change in recording.image_changes():
        if change.event == "map":
            binary = ptcore.Binary(change.path)
            image.map(change.epoch, change.address, change.size_bytes, change.offset, binary, change.path)
        elif change.event == "unmap":
            image.unmap(change.epoch, change.address, change.size_bytes)
        else:
            image.code(change.epoch, change.address, change.code)
    return image


def cpu_seconds(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    main()
