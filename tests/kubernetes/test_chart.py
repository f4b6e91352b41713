"""The Helm chart: what it renders is what Kubernetes accepts and what the services know."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator

import pytest
from permille.alertmanager.main import main as alertmanager_main
from permille.controller.main import ControllerConfig
from permille.coverage.domain.quota import CallerLimits
from permille.coverage.main import CoverageConfig
from permille.coverage.operator import OperatorConfig
from permille.decoder.main import DecoderConfig
from permille.mesh.config import MeshConfig, load
from permille.mesh.embedded_etcd import etcd_binary

from tests.kubernetes.api_server import ADMIN, CHART, Answer, ApiServer, Object, User, eventually, install, remove
from tests.kubernetes.chart import ALERTS, CLAIM, KMOD, NAMESPACE, PERF, PRIVILEGED, VPT, Helm, environment, pods
from tests.kubernetes.pods import ZONE, made_node
from tests.kubernetes.trace_requests import request

pytestmark = pytest.mark.slow
ROOT = CHART.parents[2]
FINALIZER = "permille.dev/recordings"
CONFIGS = {
    "allocator": MeshConfig,
    "cli": MeshConfig,
    "controller": ControllerConfig,
    "coverage": CoverageConfig,
    "decoder": DecoderConfig,
    "operator": OperatorConfig,
}


ETCD_SIZES = {"1Gi": 322_122_547, "8Gi": 2_576_980_377, "10G": 3_000_000_000, "1.5Ti": 8 << 30, "1Pi": 8 << 30}


@pytest.fixture
def bare_server(api_server: ApiServer, admin: User) -> Iterator[ApiServer]:
    """One without anything of permille's."""
    remove(admin)
    yield api_server
    install(admin)


@pytest.mark.parametrize("values", [ALERTS, CLAIM, KMOD, PERF, VPT, PRIVILEGED])
def test_lint_finds_nothing(helm: Helm, values: Object) -> None:
    told = helm("lint", "--strict", str(CHART), values=values)
    assert "0 chart(s) failed" in told and "WARNING" not in told


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({}, "image.registry is needed"),
        ({"image": KMOD["image"]}, "set controller.deviceResource to the resource of a device plugin"),
        ({**KMOD, "imagee": {}}, "additional properties 'imagee' not allowed"),
        ({**KMOD, "etcd": {"bundled": {"replicas": 2}}}, "value must be one of 1, 3, 5"),
        ({**KMOD, "etcd": {"endpoints": ["https://etcd:2379"]}}, "at '/etcd/endpoints/0'"),
        ({**KMOD, "store": {"url": "gs://bucket"}}, "at '/store/url'"),
        ({**CLAIM, "store": {**CLAIM["store"], **VPT["store"]}}, "store.url and store.claim are two stores"),
        ({**KMOD, "store": {"url": "s3://traces", "claim": {"existing": "shared"}}}, "leave one of them empty"),
        ({**KMOD, "store": {"claim": {"existing": "shared", "size": "1Gi"}}}, "leave store.claim.size empty"),
        ({**KMOD, "store": {"bundled": {"replicas": 2}}}, "at '/store/bundled': additional properties 'replicas'"),
        ({**KMOD, "decoder": {"replicas": 0}}, "at '/decoder/replicas': minimum: got 0, want 1"),
        ({**KMOD, "coverage": {"settings": {"patience": 3}}}, "additional properties 'patience' not allowed"),
        ({**KMOD, "coverage": {"settings": {"patience_s": "long"}}}, "at '/coverage/settings/patience_s': got string"),
        (
            {**KMOD, "coverage": {"settings": {"quotas": {"a": {"core": 3}}}}},
            "additional properties 'core' not allowed",
        ),
        ({**KMOD, "operator": {"settings": {"zones": {}}}}, "additional properties 'zones' not allowed"),
        ({**KMOD, "allocator": {"settings": {"patience_s": 3}}}, "additional properties 'patience_s' not allowed"),
        ({**KMOD, "decoder": {"settings": {"retention": 3}}}, "additional properties 'retention' not allowed"),
        ({**KMOD, "settings": {"log_level": "loud"}}, "at '/settings/log_level': value must be one of"),
        (
            {**KMOD, "alertmanager": {"enabled": True, "namespaces": ["*"]}},
            "set alertmanager.from to the peers of a NetworkPolicy",
        ),
        (
            {**KMOD, "alertmanager": {**ALERTS["alertmanager"], "namespaces": []}},
            "set alertmanager.namespaces to the namespaces that alerts may name",
        ),
        ({**KMOD, "alertmanager": {"namespaces": ["Shop"]}}, "at '/alertmanager/namespaces/0'"),
        ({**KMOD, "alertmanager": {"labels": {"job": "x"}}}, "at '/alertmanager/labels': additional properties 'job'"),
        ({**KMOD, "alertmanager": {"periodMs": -1}}, "at '/alertmanager/periodMs'"),
        ({**VPT, "controller": {"backend": "bts"}}, "at '/controller/backend'"),
        *(
            ({**KMOD, part: None}, f"missing property '{part}'")
            for part in ("alertmanager", "cli", "controller", "coverage", "etcd", "networkPolicy", "store", "tls")
        ),
        ({**KMOD, "etcd": {"bundled": None}}, "at '/etcd': missing property 'bundled'"),
        ({**KMOD, "etcd": {"bundled": {"replicas": None}}}, "at '/etcd/bundled': missing property 'replicas'"),
        ({**KMOD, "store": {"claim": None}}, "at '/store': missing property 'claim'"),
        ({**KMOD, "etcd": {"endpoints": ["fd00::1:2379"]}}, "at '/etcd/endpoints/0'"),
        ({**ALERTS, "coverage": {"settings": {"callers": "[]"}}}, "coverage.settings.callers is a table by caller"),
        ({**KMOD, "coverage": {"settings": {"callers": []}}}, "at '/coverage/settings/callers': got array"),
        ({**KMOD, "settings": {"store": "file:///here"}}, "settings.store is set by the chart itself: set store.url"),
        (
            {**KMOD, "settings": {"etcd_ca": "/ca.crt"}},
            "settings.etcd_ca is set by the chart itself: set etcd.tls",
        ),
        ({**KMOD, "settings": {"node": "n1"}}, "settings.node is set by the chart itself: the chart's pods need it"),
        ({**KMOD, "controller": {**KMOD["controller"], "settings": {"backend": "vpt"}}}, "set controller.backend"),
        ({**KMOD, "settings": {"controller_backend": "vpt"}}, "is of one service: set controller.settings.backend"),
    ],
)
def test_wrong_values_are_refused_by_name(helm: Helm, values: Object, told: str) -> None:
    assert told in helm("template", str(CHART), values=values, code=1)


@pytest.mark.parametrize("values", [CLAIM, KMOD, PERF, VPT])
def test_every_setting_in_a_pod_is_one_that_its_service_knows(helm: Helm, values: Object) -> None:
    rendered = pods(helm.rendered(values))
    stores = {
        json.dumps(CLAIM["store"]): "file:///var/lib/permille-store",
        json.dumps(VPT["store"]): VPT["store"]["url"],
        "null": f"s3://traces?endpoint=https://permille-store.{NAMESPACE}.svc:7070",
    }
    assert set(rendered) - {"permille-etcd", "permille-store"} == {f"permille-{name}" for name in CONFIGS}
    for name, config_class in CONFIGS.items():
        (container,) = rendered[f"permille-{name}"]["spec"]["containers"]
        config = load(config_class, environment=environment(container))
        assert config.node == "node-1" and config.tls and config.etcd_ca is not None
        if isinstance(config, ControllerConfig):
            assert config.controller.zone == "east"
        if name != "cli":
            assert (config.advertise, config.health) == ("10.1.2.3:7600", "0.0.0.0:7602")
            assert config.store_url == stores[json.dumps(values.get("store"))]
    if values is VPT:
        assert config.etcd == ("etcd-1:2379", "etcd-2:2379") and config.call_timeout_s == 12.5


def test_etcd_knows_its_flags(helm: Helm) -> None:
    (container,) = pods(helm.rendered(KMOD))["permille-etcd"]["spec"]["containers"]
    known = subprocess.run([etcd_binary(), "--help"], capture_output=True, text=True, check=False)
    for argument in container["args"]:
        flag = argument.partition("=")[0]
        assert re.search(rf"^\s+{flag}\b", known.stdout + known.stderr, re.MULTILINE), flag


def test_who_uses_the_bundled_store_has_its_key_and_knows_it_by_its_authority_and_nobody_else(helm: Helm) -> None:
    objects = helm.rendered(KMOD)
    rendered = pods(objects)
    for name, pod in rendered.items():
        (container,) = pod["spec"]["containers"]
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        secrets = {volume["secret"]["secretName"] for volume in volumes.values() if "secret" in volume}
        uses = name in ("permille-controller", "permille-decoder")
        assert (container.get("envFrom") == [{"secretRef": {"name": "permille-store"}}]) == uses
        assert ("permille-store-tls" in secrets) == (uses or name == "permille-store")
        if uses:
            # Not the key with which it could pass for the store.
            assert volumes["store-authority"]["secret"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}]
            assert environment(container)["AWS_CA_BUNDLE"] == "/etc/permille/store/ca.crt"
    services = {body["metadata"]["name"]: body["spec"] for body in objects if body["kind"] == "Service"}
    labels = rendered["permille-store"]["metadata"]["labels"].items()
    assert services["permille-store"]["selector"].items() <= labels
    assert services["permille-store"]["ports"] == [{"name": "s3", "port": 7070}]
    for values in (CLAIM, VPT):
        others = helm.rendered(values)
        assert "permille-store" not in pods(others) and "AWS_CA_BUNDLE" not in json.dumps(others)


@pytest.mark.parametrize(("size", "quota"), ETCD_SIZES.items())
def test_etcd_is_told_to_stay_within_its_claim(helm: Helm, size: str, quota: int) -> None:
    objects = helm.rendered({**KMOD, "etcd": {"bundled": {"size": size}}})
    (container,) = pods(objects)["permille-etcd"]["spec"]["containers"]
    assert f"--quota-backend-bytes={quota}" in container["args"]


def test_the_webhook_of_alertmanager_knows_its_arguments_and_is_reached_where_others_look_for_it(helm: Helm) -> None:
    assert not [body for body in helm.rendered(KMOD) if body["metadata"]["name"] == "permille-alertmanager"]
    objects = helm.rendered(ALERTS)
    pod = pods(objects)["permille-alertmanager"]
    (container,) = pod["spec"]["containers"]
    # Its usage is right where the first thing that it misses is a secret's file, and that one is mounted.
    with pytest.raises(SystemExit, match="No such file or directory: '/etc/permille/webhook/token'"):
        alertmanager_main(container["args"])
    assert {volume["secret"]["secretName"] for volume in pod["spec"]["volumes"]} == {
        "permille-alertmanager-tls",
        "permille-alertmanager-webhook",
    }
    assert "--label=process_name=job" in container["args"] and "--period-ms=200" in container["args"]
    services = {body["metadata"]["name"]: body["spec"] for body in objects if body["kind"] == "Service"}
    assert f"--coverage=permille-coverage.{NAMESPACE}.svc:7600" in container["args"]
    assert services["permille-coverage"]["ports"] == [{"name": "grpc", "port": 7600}]
    for name in ("permille-coverage", "permille-alertmanager"):
        assert services[name]["selector"].items() <= pods(objects)[name]["metadata"]["labels"].items()
        ports = {port["containerPort"] for port in pods(objects)[name]["spec"]["containers"][0]["ports"]}
        assert services[name]["ports"][0]["port"] in ports
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/healthz", "port": "https", "scheme": "HTTPS"}


def test_coverage_lets_the_webhook_ask_for_the_namespaces_that_alerts_may_name_beside_its_own_settings(
    helm: Helm,
) -> None:
    def callers(values: Object) -> dict[str, CallerLimits]:
        (container,) = pods(helm.rendered(values))["permille-coverage"]["spec"]["containers"]
        config = load(CoverageConfig, environment=environment(container))
        return dict(config.coverage.policy().callers)

    assert callers(KMOD) == {}
    # The one of alerts without a namespace is among them.
    assert callers(ALERTS) == {"alertmanager": CallerLimits(namespaces=("shop", "ops"))}
    others = '{"default": {"calls_per_minute": 60}, "pager": {"requests": 9, "namespaces": ["bank"]}}'
    set_too: Object = {**ALERTS, "coverage": {"settings": {"callers": others}}}
    assert callers(set_too) == {
        "default": CallerLimits(calls_per_minute=60),
        "pager": CallerLimits(requests=9, namespaces=("bank",)),
        "alertmanager": CallerLimits(calls_per_minute=60, namespaces=("shop", "ops")),
    }
    shared: Object = {**set_too, "alertmanager": {**ALERTS["alertmanager"], "callerName": "pager", "namespace": ""}}
    assert callers(shared)["pager"] == CallerLimits(requests=9, namespaces=("shop", "default"))


def test_a_table_is_written_as_one_or_as_json(helm: Helm) -> None:
    quotas = {"shop": {"cores": 64, "bytes_per_second": 15_000_000_000}}
    for written in (quotas, json.dumps(quotas)):
        values = {**KMOD, "coverage": {"settings": {"quotas": written}}}
        (container,) = pods(helm.rendered(values))["permille-coverage"]["spec"]["containers"]
        shop = load(CoverageConfig, environment=environment(container)).coverage.policy().quotas["shop"]
        assert (shop.cores, shop.bytes_per_second) == (64, 15_000_000_000)


def test_nothing_is_set_twice_and_resources_may_be_left_out(helm: Helm) -> None:
    bare: Object = {**KMOD, "controller": {**KMOD["controller"], "resources": None}}
    for values in (ALERTS, CLAIM, VPT, bare):
        for name, pod in pods(helm.rendered(values)).items():
            (container,) = pod["spec"]["containers"]
            names = [variable["name"] for variable in container.get("env", [])]
            assert len(names) == len(set(names)), name


def test_an_etcd_may_be_an_address(helm: Helm) -> None:
    endpoints = ["[fd00::1]:2379", "10.0.0.1:2379"]
    (container,) = pods(helm.rendered({**KMOD, "etcd": {"endpoints": endpoints}}))["permille-cli"]["spec"]["containers"]
    assert load(MeshConfig, environment=environment(container)).etcd == tuple(endpoints)


def test_only_the_controller_has_more_than_nothing(helm: Helm) -> None:
    for values, added in (
        (ALERTS, {"BPF", "DAC_READ_SEARCH", "PERFMON", "SYS_PTRACE"}),
        (KMOD, {"BPF", "DAC_READ_SEARCH", "PERFMON", "SYS_PTRACE"}),
        (PERF, {"BPF", "DAC_READ_SEARCH", "IPC_LOCK", "PERFMON", "SYS_PTRACE"}),
        (VPT, {"BPF", "DAC_READ_SEARCH", "PERFMON", "SYS_PTRACE"}),
    ):
        for name, pod in pods(helm.rendered(values)).items():
            (container,) = pod["spec"]["containers"]
            rights = container["securityContext"]
            assert rights["readOnlyRootFilesystem"] and not rights.get("privileged"), name
            capabilities = rights["capabilities"]
            assert capabilities["drop"] == ["ALL"]
            assert set(capabilities.get("add", [])) == (added if name == "permille-controller" else set())
            assert pod["spec"]["automountServiceAccountToken"] == (name == "permille-operator")
            # Else a Service's own variables would be taken for settings.
            assert pod["spec"]["enableServiceLinks"] is False


def test_each_pod_has_one_network_policy(helm: Helm) -> None:
    objects = helm.rendered({**ALERTS, "networkPolicy": {}})
    policies = [body["spec"] for body in objects if body["kind"] == "NetworkPolicy"]
    for name, pod in pods(objects).items():
        labels = pod["metadata"]["labels"].items()
        (policy,) = [one for one in policies if one["podSelector"]["matchLabels"].items() <= labels]
        assert policy["policyTypes"] == ["Ingress"]
        ports = {port["port"] for rule in policy.get("ingress") or [] for port in rule["ports"]}
        expected = {
            "permille-etcd": {2379, 2380},
            "permille-operator": set(),
            "permille-cli": set(),
            "permille-alertmanager": {9095},
            "permille-store": {7070},
        }
        assert ports == expected.get(name, {7600})


def test_a_release_is_installed_changed_and_removed(helm: Helm, bare_server: ApiServer, admin: User) -> None:
    admin.made({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    where = ["--namespace", NAMESPACE, "--kubeconfig", str(bare_server.kubeconfig(f"token-of-{ADMIN}"))]
    told = helm("install", "permille", str(CHART), *where, values=KMOD)
    assert "STATUS: deployed" in told and "permille-user-tls" in told
    assert "has the condition Failed" in told
    assert listed(admin, "apps/v1", "deployments") == {f"permille-{name}" for name in CONFIGS} - {"permille-controller"}
    assert listed(admin, "apps/v1", "statefulsets") == {"permille-etcd", "permille-store"}
    store = admin.call("GET", f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets/permille-store").body["spec"]
    assert store["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    account = admin.call("GET", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/permille-operator")
    binding = admin.call("GET", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/permille-operator")
    assert account.status == 200 and binding.body["subjects"][0]["namespace"] == NAMESPACE

    helm("upgrade", "permille", str(CHART), *where, values=CLAIM)
    assert listed(admin, "apps/v1", "statefulsets") == {"permille-etcd"}
    assert listed(admin, "v1", "persistentvolumeclaims") == {"permille-store"}

    helm("upgrade", "permille", str(CHART), *where, values=VPT)
    decoder = admin.call("GET", f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/permille-decoder").body
    assert decoder["spec"]["replicas"] == 5 and listed(admin, "apps/v1", "statefulsets") == set()
    # What was recorded outlives a change of the store, and the release.
    assert listed(admin, "v1", "persistentvolumeclaims") == {"permille-store"}

    helm("uninstall", "permille", *where)
    assert listed(admin, "apps/v1", "deployments") == set()
    assert listed(admin, "v1", "persistentvolumeclaims") == {"permille-store"}
    crds = admin.call("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions").body["items"]
    assert {body["metadata"]["name"] for body in crds} >= {"tracerequests.permille.dev"}


def test_the_members_of_etcd_are_as_many_as_they_were_until_they_are_made_anew(
    helm: Helm, bare_server: ApiServer, admin: User
) -> None:
    namespace, one = "members", {**KMOD, "etcd": {"bundled": {"replicas": 1}}}
    where = ["--namespace", namespace, "--kubeconfig", str(bare_server.kubeconfig(f"token-of-{ADMIN}"))]
    etcd = f"/apis/apps/v1/namespaces/{namespace}/statefulsets/permille-etcd"
    admin.made({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    helm("install", "permille", str(CHART), *where, values=KMOD)
    helm("upgrade", "permille", str(CHART), *where, values=KMOD)
    told = helm("upgrade", "permille", str(CHART), *where, values=one, code=1)
    assert "etcd has 3 members and cannot become one of 1" in told and "Another number of etcd's members" in told
    assert "## Another number of etcd's members" in (ROOT / "docs" / "operations.md").read_text()
    # Scaled down for a restore it has as many.
    assert admin.call("PATCH", etcd, {"spec": {"replicas": 0}}).status == 200
    assert "etcd has 3 members" in helm("upgrade", "permille", str(CHART), *where, values=one, code=1)

    # As docs/operations.md says.
    assert admin.call("DELETE", etcd).status == 200
    eventually(lambda: admin.call("GET", etcd).status == 404, "the end of the StatefulSet")
    anew = helm.only("templates/etcd.yaml", namespace, one)
    for body in anew:
        if body["kind"] == "StatefulSet":
            made = admin.call("POST", etcd.rpartition("/")[0], body)
            assert made.status == 201 and made.body["spec"]["replicas"] == 1, made
    helm("upgrade", "permille", str(CHART), *where, values=one)
    helm("uninstall", "permille", *where)


def test_what_the_operator_has_not_released_goes_as_the_page_says(
    helm: Helm, bare_server: ApiServer, admin: User
) -> None:
    where = ["--namespace", "removed", "--kubeconfig", str(bare_server.kubeconfig(f"token-of-{ADMIN}"))]
    admin.made({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "removed"}})
    helm("install", "permille", str(CHART), *where, values=KMOD)
    eventually(lambda: admin.get("TraceRequest", "removed", "left").status == 404, "the kind")
    metadata = {"name": "left", "namespace": "removed", "finalizers": [FINALIZER]}
    admin.made({**request("removed"), "metadata": metadata})
    assert admin.delete("TraceRequest", "removed", "left").status == 200
    helm("uninstall", "permille", *where)
    crd = ("CustomResourceDefinition", "", "tracerequests.permille.dev")
    assert admin.delete(*crd).status == 200
    left = admin.get("TraceRequest", "removed", "left").body
    assert left["metadata"]["deletionTimestamp"] and admin.get(*crd).status == 200

    page = (ROOT / "docs" / "kubernetes.md").read_text()
    (patch,) = re.findall(r"patch treq \S+ --type merge -p '(.+)'", page)
    assert admin.patch("TraceRequest", "removed", "left", json.loads(patch)).status == 200
    eventually(lambda: admin.get(*crd).status == 404, "the end of the kind")


def test_pod_security_admits_all_but_the_controller_where_it_is_restricted(helm: Helm, admin: User) -> None:
    enforced = {"pod-security.kubernetes.io/enforce": "restricted"}
    admin.made({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "restricted", "labels": enforced}})
    controller = pods(helm.rendered(KMOD))["permille-controller"]
    eventually(lambda: tried(admin, controller).status == 403, "the label to be in force")
    for values in (ALERTS, CLAIM, KMOD, VPT):
        for name, pod in pods(helm.rendered(values)).items():
            answer = tried(admin, pod)
            assert answer.status == (403 if name == "permille-controller" else 201), (name, answer.message)


def test_a_controller_is_told_the_zone_that_its_node_has(helm: Helm, bare_server: ApiServer) -> None:
    admin = bare_server.user(ADMIN)
    node, name = made_node(admin, "east"), "told"
    (container,) = pods(helm.rendered(KMOD))["permille-controller"]["spec"]["containers"]
    path = next(one["valueFrom"]["fieldRef"]["fieldPath"] for one in container["env"] if one["name"].endswith("_ZONE"))
    spec = {"containers": [{"name": "controller", "image": "controller", "env": container["env"]}]}
    metadata = {"name": name, "namespace": "default"}
    admin.made({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    # As the scheduler does.
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
    bound = admin.call("POST", f"/api/v1/namespaces/default/pods/{name}/binding", binding)
    assert bound.status == 201, bound
    labels = admin.get("Pod", "default", name).body["metadata"]["labels"]
    assert path == f"metadata.labels['{ZONE}']" and labels[ZONE] == "east"


def tried(admin: User, pod: Object) -> Answer:
    """What the server says to a pod of this template, without making it."""
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "tried"}, "spec": pod["spec"]}
    return admin.call("POST", "/api/v1/namespaces/restricted/pods?dryRun=All&fieldValidation=Strict", body)


def listed(admin: User, version: str, resource: str) -> set[str]:
    root = "/api" if version == "v1" else "/apis"
    answer = admin.call("GET", f"{root}/{version}/namespaces/{NAMESPACE}/{resource}")
    return {body["metadata"]["name"] for body in answer.body["items"]}
