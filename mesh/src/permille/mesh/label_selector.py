"""Label selectors of Kubernetes, `app=web,tier!=front,zone in (a,b),canary,!legacy`: which labels one selects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from permille.mesh.errors import InvalidArgument

# Kubernetes, "Labels and Selectors": a key may have a DNS subdomain in front, a value may be empty.
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_VALUE = rf"\s*(?:{_NAME}\s*)?"
_TERM = re.compile(
    rf"\s*(?P<not>!\s*)?(?P<key>(?:[a-z0-9.-]{{1,253}}/)?{_NAME})"
    rf"(?:\s*(?P<relation>==?|!=)(?P<value>{_VALUE})|\s+(?P<word>in|notin)\s*\((?P<among>{_VALUE}(?:,{_VALUE})*)\))?"
    r"\s*(?:,|$)"
)
# What somebody meant as one condition.
_PART = re.compile(r"[^,(]*(?:\([^)]*\)?)?[^,]*")


@dataclass(frozen=True)
class Term:
    """A label with one of these values, or with any where `values` is None; where `absent`, no such label."""

    key: str
    values: frozenset[str] | None
    absent: bool

    def holds(self, labels: Mapping[str, str]) -> bool:
        there = self.key in labels and (self.values is None or labels[self.key] in self.values)
        return there is not self.absent


def parse(text: str) -> tuple[Term, ...]:
    """All terms must hold. Raises InvalidArgument (SELECTOR_INVALID)."""
    terms: list[Term] = []
    begin = 0
    while True:
        match = _TERM.match(text, begin)
        if match is None or (match["not"] and (match["relation"] or match["word"])):
            raise _invalid(text, begin)
        terms.append(_term(match))
        if not match[0].endswith(","):
            return tuple(terms)
        begin = match.end()


def selects(terms: tuple[Term, ...], labels: Mapping[str, str]) -> bool:
    """Whether these labels are meant."""
    return all(term.holds(labels) for term in terms)


def _term(match: re.Match[str]) -> Term:
    key = match["key"]
    if match["word"]:
        values = frozenset(value.strip() for value in match["among"].split(","))
        return Term(key, values, match["word"] == "notin")
    if match["relation"]:
        return Term(key, frozenset([match["value"].strip()]), match["relation"] == "!=")
    return Term(key, None, bool(match["not"]))


def _invalid(text: str, begin: int) -> InvalidArgument:
    part = _PART.match(text, begin)
    return InvalidArgument(
        f"{part[0].strip() if part else text!r} is no condition on a label",
        reason="SELECTOR_INVALID",
        help="write KEY=VALUE, KEY!=VALUE, KEY in (A,B), KEY notin (A,B), KEY or !KEY, several with commas: "
        "app=web,tier!=front",
        metadata={"selector": text},
    )
