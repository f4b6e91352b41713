"""libipt and ptcore see the same in what vpt records of real programs: packets, instructions, blocks, events, times."""

from __future__ import annotations

import contextlib
import os
import random
import re
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from permille.controller.domain.vpt_layout import Flags

TIMED = Flags.BRANCH | Flags.TSC | Flags.MTC | Flags.CYC
PERL = r"""
my %seen;
while (1) {
    for my $n (1 .. 500) { my $s = join ",", map { $_ * $n } 1 .. 20; $seen{$1}++ while $s =~ /(\d\d)/g; }
    my @sorted = sort { $seen{$a} <=> $seen{$b} || $a cmp $b } keys %seen;
    eval { die { why => $sorted[0] } };
}
"""
BASH = r"""
count() { local n=$1; (( n > 0 )) && count $(( n - 1 )); words+=("${n}x${n//1/one}"); }
while :; do words=(); count 30; case "${words[*]}" in *one*) text=${words[*]^^};; esac; done
"""
SQL = """
import sqlite3
db = sqlite3.connect(":memory:")
db.execute("create table t (a integer primary key, b text, c real)")
while True:
    db.executemany("insert into t (b, c) values (?, ?)", ((str(n) * 3, n / 7) for n in range(300)))
    db.execute("select b, sum(c) from t where b like '%1%' group by b order by 2 desc").fetchall()
    db.execute("delete from t")
"""
AWK = '{ for (i = 1; i <= NF; i++) n[$i]++; if (NR % 50 == 0) { gsub(/e+/, "E"); s = s substr($0, 1, 9) length($1) } }'
EXPRESSION = r"(t[aeiou]+n|s.*h.*d){2,}|^e[^t]*(ao)+$"
OTHERS = {
    "perl": ["/usr/bin/perl", "-e", PERL],
    "bash": ["/bin/bash", "-c", BASH],
    "sqlite": ["/usr/bin/python3", "-c", SQL],
    "openssl": ["/usr/bin/openssl", "speed", "-seconds", "60", "rsa2048", "ecdsap256"],
}
FED = {
    "xz": ["/usr/bin/xz", "-c"],
    "sort": ["/usr/bin/sort", "-S", "1M"],
    "awk": ["/usr/bin/mawk", AWK],
    "grep": ["/bin/grep", "-E", "-c", EXPRESSION],
}
KNOWN = ["gzip", "redis", "python", "program"]
# Each program with other packets, besides all of them.
OPTIONS = {
    "gzip": (TIMED, {"bandwidth": 500}),
    "redis": (TIMED | Flags.LONG_TNT | Flags.DISRETC, {}),
    "python": (TIMED | Flags.LONG_TNT, {"bandwidth": 2000, "mtc_freq": 6}),
    "program": (TIMED, {"psb_freq": 0}),
    "perl": (TIMED & ~Flags.CYC, {}),
    "bash": (TIMED & ~Flags.MTC | Flags.LONG_TNT, {}),
    "sqlite": (TIMED & ~Flags.TSC | Flags.LONG_TNT, {"mtc_freq": 0}),
    "openssl": (TIMED | Flags.LONG_TNT, {"mtc_freq": 9, "psb_freq": 8}),
    "xz": (Flags.BRANCH, {}),
    "sort": (Flags.BRANCH | Flags.TSC | Flags.DISRETC, {}),
    "awk": (Flags.BRANCH | Flags.CYC | Flags.LONG_TNT, {"bandwidth": 1000}),
    "grep": (Flags.BRANCH | Flags.MTC, {"mtc_freq": 9}),
}
LAYER = re.compile(
    r"(?P<layer>packets|instructions|blocks): packets (?P<packets>\d+) instructions (?P<instructions>\d+) "
    r"events (?P<events>\d+) timed (?P<timed>\d+) behind \d+ errors (?P<errors>\d+) reached (?P<reached>\d+) "
    r"stricter (?P<stricter>\d+)\n"
)
ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def at_work(lab: Any, program: str) -> Iterator[Any]:
    """The program under the recorder, at something that does not end."""
    if program in KNOWN:
        with lab.busy(program) as target:
            yield target
        return
    if program in OTHERS:
        with lab.run(*OTHERS[program]) as target:
            yield target
        return
    text = lab.scratch / "text"
    text.write_text("\n".join(" ".join(words(line)) for line in range(5000)))
    feeder = subprocess.Popen(["sh", "-c", f"while cat {text}; do :; done"], stdout=subprocess.PIPE)
    try:
        with lab.run(*FED[program], stdin=feeder.stdout, cwd=lab.scratch) as target:
            yield target
    finally:
        feeder.kill()
        feeder.wait()


def words(seed: int) -> list[str]:
    dice = random.Random(seed)
    return ["".join(dice.choices("etaoinshrdlu", k=dice.randrange(1, 9))) for _ in range(dice.randrange(3, 20))]


@pytest.mark.slow
@pytest.mark.parametrize("program", OPTIONS)
def test_libipt_and_ptcore_agree(lab: Any, differential: Callable[[Path, int], str], program: str) -> None:
    """Nothing differs, but that the flow stops in front of the branch behind the last packet (`reached`)."""
    instructions = events = 0
    with at_work(lab, program) as target:
        for flags, options in [(TIMED | Flags.LONG_TNT, {}), OPTIONS[program]]:
            recording = target.record(flags, period_ms=300, size_bytes=1 << 19, **options)
            with target.at_rest(), ThreadPoolExecutor(os.cpu_count()) as pool:
                streams = [header.index for header in recording.streams()]
                for told in pool.map(partial(differential, recording.folder), streams):
                    packets, by_instructions, by_blocks = layers(told)
                    assert packets["packets"] > 0, told
                    assert by_instructions == by_blocks, told
                    assert by_blocks["reached"] <= 1, told
                    assert packets["errors"] == by_blocks["errors"] == by_blocks["stricter"] == 0, told
                    instructions += by_blocks["instructions"]
                    events += by_blocks["events"]
            target.release()
    print(f"{program}: {instructions} instructions, {events} events")
    assert instructions > 10_000
    assert events >= 4


def layers(told: str) -> list[dict[str, int]]:
    """What was found equal, layer by layer."""
    found = [match.groupdict() for match in LAYER.finditer(told)]
    assert [layer.pop("layer") for layer in found] == ["packets", "instructions", "blocks"], told
    return [{name: int(number) for name, number in layer.items()} for layer in found]


def test_the_table_of_conformance_has_every_program() -> None:
    table = (ROOT / "docs/pt-conformance.md").read_text()
    assert [name for name in OPTIONS if f"\n| `{name}` " not in table] == []
