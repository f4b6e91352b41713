"""Whether a TraceRequest may go on, and with which pods: decided once, and written down before anything begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from permille.coverage.domain.kubernetes.admission import NAME
from permille.coverage.domain.kubernetes.choosing import choices, not_chosen
from permille.coverage.domain.kubernetes.conditions import camel_case
from permille.coverage.domain.kubernetes.instances import instances
from permille.coverage.domain.kubernetes.labels import label_selector
from permille.coverage.domain.kubernetes.wish import Policy, policy_of, wish_of
from permille.coverage.domain.period import Purpose
from permille.coverage.domain.spatial_sampler import Sampling
from permille.coverage.domain.target import Target
from permille.coverage.service.inventory import Inventory
from permille.coverage.service.kubernetes.cluster import POLICIES, REQUESTS, Cluster, Object
from permille.coverage.service.kubernetes.expected_rates import ExpectedRates
from permille.coverage.service.kubernetes.pod_inventory import PodInventory
from permille.coverage.service.kubernetes.request_status import Verdict, accepted, reasons, refused, waits
from permille.coverage.service.kubernetes.user_rights import UserRights
from permille.coverage.service.kubernetes.watched import Watched, known
from permille.mesh.errors import NotFound, PermilleError, Unavailable
from permille.mesh.label_selector import parse

ADMISSION_MISSING = "AdmissionPolicyMissing"
_POLICY = "default"


class Acceptance:
    """Decides about requests; `sampling`: how much of a deployment a profile looks at."""

    def __init__(
        self, cluster: Cluster, rights: UserRights, watched: Watched, rates: ExpectedRates, sampling: Sampling
    ) -> None:
        self._cluster = cluster
        self._rights = rights
        self._watched = watched
        self._rates = rates
        self._sampling = sampling

    async def judge(self, request: Object) -> Verdict:
        """Looks at the rights, the quota and the pods. Raises what `Cluster` raises, and `Unavailable` without etcd."""
        metadata = request["metadata"]
        namespace = metadata["namespace"]
        asked = await self._rights.look()
        if asked.why_not:
            return waits(
                ADMISSION_MISSING,
                f"the ValidatingAdmissionPolicy {NAME} and its binding are not in force, so nobody has asked whether "
                f"the user may get these pods: {asked.why_not}; an administrator has to install them as the chart has "
                "them",
            )
        # Whole seconds: of one that was made in the same one nobody knows whether it was asked about.
        if metadata["creationTimestamp"] <= asked.since:
            return refused(
                "NotChecked",
                "it is not known that the admission policy that checks the user's rights was in force when this was "
                f"made, only of what was made after {asked.since}; make the request again",
            )
        others = [known(one) for one in await self._cluster.all_of(REQUESTS, namespace)]
        active = sum(one.active and one.uid != metadata["uid"] for one in others)
        return await self._decided(request, await self.policy(namespace), active, ask=True)

    async def policy(self, namespace: str) -> Policy:
        """What is in force in the namespace. Raises what `Cluster` raises."""
        policy = await self._cluster.get(POLICIES, namespace, _POLICY)
        return policy_of(policy["spec"] if policy else None)

    async def look(self, request: Object) -> Verdict:
        """What `judge` would probably say, from what is known: it costs no call."""
        metadata = request["metadata"]
        namespace = metadata["namespace"]
        policy = self._watched.policies.of(namespace).get(_POLICY, Policy())
        return await self._decided(request, policy, self._watched.active(namespace, metadata["uid"]), ask=False)

    async def _decided(self, request: Object, policy: Policy, active: int, *, ask: bool) -> Verdict:
        namespace, meant = request["metadata"]["namespace"], request["spec"]["target"]
        try:
            wish = wish_of(request["spec"], policy)
            target = _target(namespace, meant)
        except PermilleError as error:
            return refused(camel_case(error.reason), f"{error.message}; {error.help}")
        if active >= policy.active_requests:
            return waits(
                "QuotaActiveRequests",
                f"{active} requests of this namespace are active, as many as its TracePolicy allows; "
                "this one begins when one of them ends",
            )
        inventory: Inventory = PodInventory(self._watched, namespace, meant.get("container", ""))
        try:
            found = instances(await inventory.nodes(target))
        except NotFound as error:
            return waits("NoInstance", f"nothing to record yet: {error.message}")
        except Unavailable as error:
            return waits(camel_case(error.reason), error.message)
        if wish.purpose is Purpose.PROFILING:
            if ask:
                await self._rates.learn(namespace, found)
            found = self._rates.estimated(namespace, found)
        made = choices(found, wish, self._sampling)
        if not any(choice.chosen for choice in made):
            told = "; ".join(reasons(not_chosen(made)))
            return waits("NoneFits", f"none of {len(made)} running pods can be recorded now: {told}")
        return accepted(request["metadata"], wish, made)


def _target(namespace: str, meant: Mapping[str, Any]) -> Target:
    """Raises `InvalidArgument` for labels that cannot be: of keys the API server does not ask."""
    if "podName" in meant:
        return Target(pod=f"{namespace}/{meant['podName']}")
    selector = label_selector(meant["selector"])
    parse(selector)
    return Target(selector=selector)
