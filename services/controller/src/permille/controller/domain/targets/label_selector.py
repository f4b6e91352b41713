"""Pods by their labels."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from permille.controller.domain.targets.container_names import pods_of
from permille.controller.domain.targets.process_cgroups import memberships
from permille.controller.domain.targets.resolution import NEAREST, Resolved, Roots, having
from permille.mesh.label_selector import Term, parse, selects


@dataclass(frozen=True)
class Pod:
    """As the node's container runtime knows it."""

    uid: str
    full_name: str
    labels: Mapping[str, str]


def by_selector(text: str, pods: Sequence[Pod], roots: Roots) -> Resolved:
    """The processes of the pods that are selected; raises InvalidArgument (SELECTOR_INVALID)."""
    terms = parse(text)
    chosen = {pod.uid: pod for pod in pods if selects(terms, pod.labels)}
    members = memberships(roots.tree())
    pids = having(members, lambda member: not chosen.keys().isdisjoint(pods_of(member.path)))
    if pids:
        return Resolved(pids, text)
    if chosen:
        names = ", ".join(sorted(pod.full_name for pod in chosen.values())[:NEAREST])
        return Resolved(why_not=f"no process of the pods it selects is here now: {names}")
    labels = {f"{key}={value}" for pod in pods for key, value in pod.labels.items()}
    near = [close for label in _labels(terms) for close in difflib.get_close_matches(label, sorted(labels), n=NEAREST)]
    return Resolved(why_not=f"none of {len(pods)} pods has such labels", nearest=tuple(dict.fromkeys(near)))


def _labels(terms: Sequence[Term]) -> list[str]:
    """Those that are asked for."""
    wanted = [term for term in terms if not term.absent]
    return [f"{term.key}={value}" for term in wanted for value in sorted(term.values or {""})]
