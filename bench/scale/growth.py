"""From what was measured at each size: shares of the cluster, and how costs grow with it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from figures import Figure

# Of each node, so that costs can be told as a share: small nodes, on which permille would weigh most.
CORES_PER_NODE = 4
SERVICES = ("coverage", "allocator", "decoder", "etcd")
# How often every node is recorded, for the share under load.
EVERY_S = 60
GROWING = tuple(f"{what}, {name} per node" for what in ("all nodes", "decoding") for name in SERVICES)


def shares(figures: Mapping[str, Figure], nodes: int) -> dict[str, Figure]:
    """Of all cores of the cluster, without what its controllers use, which are simulated here."""
    cores = nodes * CORES_PER_NODE
    idle = sum(figures[f"idle, {name}"].value for name in SERVICES)

    def share(*what: str) -> Figure:
        per_node = sum(figures[f"{part}, {name} per node"].value for part in what for name in SERVICES)
        millicores = idle + per_node * nodes / EVERY_S
        return Figure.of([millicores / cores], "permille", f"goal: < 1; {CORES_PER_NODE} cores a node")

    return {
        "idle, share of the cluster's cores": share(),
        f"all nodes every {EVERY_S} s until stored, share": share("all nodes"),
        # Decoding itself grows with what is recorded, not with nodes.
        f"all nodes every {EVERY_S} s, share": share("all nodes", "decoding"),
    }


def growth(figures: Mapping[int, Mapping[str, Figure]]) -> dict[str, Figure]:
    """What one node costs at each size against the size before; at most 1 is linear or better."""
    found = {}
    for small, large in pairwise(sorted(figures)):
        for name in GROWING:
            before, after = figures[small][name].value, figures[large][name].value
            if before:
                key = f"growth from {small} to {large}: {name}"
                found[key] = Figure.of([after / before], "x", "linear or better: <= 1")
        before, after = (sum(figures[size][name].value for name in GROWING) for size in (small, large))
        found[f"growth from {small} to {large}: together"] = Figure.of([after / before], "x", "linear or better: <= 1")
    return found
