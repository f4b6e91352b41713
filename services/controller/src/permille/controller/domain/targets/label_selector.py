"""Pods by their labels, with the equality-based selectors of Kubernetes: `app=web,tier!=front`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from permille.controller.domain.targets.container_names import pods_of
from permille.controller.domain.targets.process_cgroups import memberships
from permille.controller.domain.targets.resolution import NEAREST, Resolved, Roots, having
from permille.mesh.errors import InvalidArgument

# Kubernetes, "Labels and Selectors": a key may have a DNS subdomain in front, a value may be empty.
_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_TERM = re.compile(rf"\s*(?P<key>([a-z0-9.-]{{1,253}}/)?{_NAME})\s*(?P<relation>==?|!=)\s*(?P<value>({_NAME})?)\s*")


@dataclass(frozen=True)
class Pod:
    """As the node's container runtime knows it."""

    uid: str
    full_name: str
    labels: Mapping[str, str]


@dataclass(frozen=True)
class Term:
    """A label that a pod must have, or, where not `equal`, must not: one without the key has it not."""

    key: str
    value: str
    equal: bool

    def holds(self, labels: Mapping[str, str]) -> bool:
        return (labels.get(self.key) == self.value) is self.equal


def parse(text: str) -> tuple[Term, ...]:
    """All terms must hold. Raises InvalidArgument (SELECTOR_INVALID)."""
    terms = []
    for part in text.split(","):
        match = _TERM.fullmatch(part)
        if match is None:
            raise InvalidArgument(
                f"{part.strip()!r} is no condition on a label",
                reason="SELECTOR_INVALID",
                help="write KEY=VALUE or KEY!=VALUE, several with commas: app=web,tier!=front",
                metadata={"selector": text},
            )
        terms.append(Term(match["key"], match["value"], match["relation"] != "!="))
    return tuple(terms)


def by_selector(text: str, pods: Sequence[Pod], roots: Roots) -> Resolved:
    """The processes of the pods that are selected; raises InvalidArgument (SELECTOR_INVALID)."""
    terms = parse(text)
    chosen = {pod.uid: pod for pod in pods if all(term.holds(pod.labels) for term in terms)}
    members = memberships(roots.proc)
    pids = having(members, lambda member: not chosen.keys().isdisjoint(pods_of(member.path)))
    if pids:
        return Resolved(pids, text)
    if chosen:
        names = ", ".join(sorted(pod.full_name for pod in chosen.values())[:NEAREST])
        return Resolved(why_not=f"no process of the pods it selects is here now: {names}")
    labels = {f"{key}={value}" for pod in pods for key, value in pod.labels.items()}
    near = [close for part in text.split(",") for close in difflib.get_close_matches(part, sorted(labels), n=NEAREST)]
    return Resolved(why_not=f"none of {len(pods)} pods has such labels", nearest=tuple(dict.fromkeys(near)))
