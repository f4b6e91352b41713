"""What control costs: the kernel module's one on and off per core, against switching at every context switch.

Both are the same module in the same guest (QEMU, two CPUs, the trace unit in memory), one after the other at each rate
of switches. An emulated processor's ticks say how the two compare, not what a real one needs.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from collections import defaultdict
from pathlib import Path

from figures import Figure, publish, ratios

ROOT = Path(__file__).parents[2]
LINE = re.compile(r"^# (operation|per switch) +(\d+) +(\d+) +(\d+) +(\d+) +([\d.]+) % +(\d+)$", re.MULTILINE)
OTHERS = re.compile(r"^# others: (\d+) ns a switch without a session, (\d+) ns with one$", re.MULTILINE)
MINE, OTHER = "operation", "per switch"

# By variant, processes and threads: arrivals, control operations, share of the time, ticks per call, of each round.
Samples = dict[tuple[str, int, int], list[tuple[float, float, float, float]]]
# ns a switch of a program that is no target, without a session and with one, of each round.
Others = list[tuple[float, float]]


def measure(rounds: int) -> tuple[Samples, Others]:
    """Boots the guest once a round; its table has a line for each variant and number of threads, and one of others."""
    samples: Samples = defaultdict(list)
    others: Others = []
    for _ in range(rounds):
        done = subprocess.run(["make", "-s", "-C", ROOT / "kmod", "otc"], check=True, stdout=subprocess.PIPE, text=True)
        for variant, processes, threads, *measured in LINE.findall(done.stdout):
            arrivals, operations, share, ticks = map(float, measured)
            samples[variant, int(processes), int(threads)].append((arrivals, operations, share, ticks))
        others += [(float(without), float(using)) for without, using in OTHERS.findall(done.stdout)]
    return samples, others


def figures_of(samples: Samples, others: Others) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    units = {"arrivals": "switches", "control": "operations", "hook, of a core": "%", "hook, a call": "ticks"}
    for processes, threads in dict.fromkeys(key[1:] for key in samples):
        mine, other = (zip(*samples[variant, processes, threads], strict=True) for variant in (MINE, OTHER))
        row = f"{threads} threads of {processes}" if processes > 1 else f"{threads} threads"
        for (what, unit), ours, theirs in zip(units.items(), mine, other, strict=True):
            anchor = f"{OTHER}: {Figure.of(theirs, unit).value:,.3f}"
            figures[f"{row}, {what}"] = Figure.of(ours, unit, anchor)
            if unit == "ticks":
                figures[f"{row}, {what}, against {OTHER}"] = ratios(ours, theirs)
    without, using = zip(*others, strict=True)
    anchor = f"without a session: {Figure.of(without, 'ns').value:,.0f}"
    figures["a program that is no target, a switch"] = Figure.of(using, "ns", anchor)
    figures["a program that is no target, a switch, against none"] = ratios(using, without)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    subprocess.run([ROOT / "deploy/install-system", "kmod"], check=True)
    publish("otc", figures_of(*measure(rounds)))


if __name__ == "__main__":
    main()
