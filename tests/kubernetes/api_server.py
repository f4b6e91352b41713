"""A real kube-apiserver on a real etcd, with RBAC, for tests that speak to it as its users do."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import urllib3
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from permille.mesh.embedded_etcd import etcd_binary

from tests.processes import PATIENCE_S, await_true, free_port

HERE = Path(__file__).parent
CHART = HERE.parents[1] / "deploy" / "helm" / "permille"
ADMIN = "admin"
Object = dict[str, Any]
_JSON = "application/json"
_KINDS = ("TraceRequest", "TraceSession", "TracePolicy")
# Not typed by its authors.
_read_yaml: Callable[[str], Iterator[Object]] = partial(yaml.load_all, Loader=yaml.CSafeLoader)
_yaml: Callable[[Object], str] = yaml.safe_dump
_COLLECTIONS = {
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "Namespace": "/api/v1/namespaces",
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/namespaces/{}/pods",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "TracePolicy": "/apis/permille.dev/v1alpha1/namespaces/{}/tracepolicies",
    "TraceRequest": "/apis/permille.dev/v1alpha1/namespaces/{}/tracerequests",
    "TraceSession": "/apis/permille.dev/v1alpha1/namespaces/{}/tracesessions",
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
}


def eventually(condition: Callable[[], object], what: str) -> None:
    """Asks until it is so, and not so often that the answers are what keeps the machine busy."""
    await_true(condition, PATIENCE_S, what, every_s=0.1)


@dataclass(frozen=True)
class Answer:
    """What the API server said."""

    status: int
    body: Object

    @property
    def message(self) -> str:
        """Of a refusal."""
        return str(self.body.get("message", ""))


class User:
    """Somebody with a token."""

    def __init__(self, server: str, ca: Path, token: str, *, impersonates: str = "") -> None:
        self._server = server
        self._ca = ca
        self._token = token
        self._impersonates = {"Impersonate-User": impersonates} if impersonates else {}
        self._pool = urllib3.PoolManager(ca_certs=str(ca), retries=urllib3.Retry(2, allowed_methods={"GET"}))

    def call(self, method: str, path: str, body: Object | None = None, *, accept: str = _JSON) -> Answer:
        """One request; raises `urllib3.exceptions.HTTPError` when the server is away."""
        kind = "application/merge-patch+json" if method == "PATCH" else _JSON
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind, "Accept": accept}
        headers |= self._impersonates
        data = None if body is None else json.dumps(body)
        answer = self._pool.request(method, self._server + path, body=data, headers=headers, timeout=60.0)
        try:
            told = json.loads(answer.data)
        except ValueError:
            told = {"message": answer.data.decode(errors="replace")}
        return Answer(answer.status, told)

    def as_user(self, name: str) -> User:
        """Somebody else, whom this one impersonates."""
        return User(self._server, self._ca, self._token, impersonates=name)

    def create(self, body: Object) -> Answer:
        """Creates an object in the namespace that it names."""
        return self.call("POST", _collection(body["kind"], body["metadata"].get("namespace", "")), body)

    def made(self, body: Object) -> Object:
        """An object that must be created."""
        answer = self.create(body)
        assert answer.status == 201, answer
        return answer.body

    def get(self, kind: str, namespace: str, name: str) -> Answer:
        """One object."""
        return self.call("GET", f"{_collection(kind, namespace)}/{name}")

    def list(self, kind: str, namespace: str) -> list[Object]:
        """All objects of a kind in a namespace."""
        answer = self.call("GET", _collection(kind, namespace))
        assert answer.status == 200, answer
        items: list[Object] = answer.body["items"]
        return items

    def patch(self, kind: str, namespace: str, name: str, body: Object, *, part: str = "") -> Answer:
        """Merges into an object; `part`: "/status"."""
        return self.call("PATCH", f"{_collection(kind, namespace)}/{name}{part}", body)

    def delete(self, kind: str, namespace: str, name: str) -> Answer:
        """Deletes an object."""
        return self.call("DELETE", f"{_collection(kind, namespace)}/{name}")

    def apply(self, file: Path) -> None:
        """Creates every object of a file; one that is there already stays."""
        for body in _read_yaml(file.read_text()):
            # A field that the server does not know is an error, and not dropped.
            path = _collection(body["kind"], body["metadata"].get("namespace", "")) + "?fieldValidation=Strict"
            answer = self.call("POST", path, body)
            assert answer.status in (201, 409), (body["kind"], answer)


class ApiServer:
    """One kube-apiserver and its etcd in `folder`. `users` have tokens; what they may is for RBAC to say."""

    def __init__(self, folder: Path, users: Sequence[str]) -> None:
        self._folder = folder
        self._port = free_port()
        self.ca = folder / "certs" / "apiserver.crt"
        self._tokens = {ADMIN: f"token-of-{ADMIN}"} | {user: f"token-of-{user}" for user in users}
        self._etcd: subprocess.Popen[bytes] | None = None
        self._etcd_url = f"http://127.0.0.1:{free_port()}"
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it is."""
        return f"https://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Returns when it is ready."""
        binary = built("kube-apiserver")
        key = self._folder / "service-accounts.key"
        if not key.exists():
            made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
            pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
            key.write_bytes(made.private_bytes(pem, pkcs8, serialization.NoEncryption()))
        tokens = self._folder / "tokens.csv"
        tokens.write_text(
            "".join(
                f'{token},{user},{user},"{"system:masters" if user == ADMIN else "people"}"\n'
                for user, token in self._tokens.items()
            )
        )
        if self._etcd is None:
            self._etcd = self._started(
                "etcd",
                str(etcd_binary()),
                f"--data-dir={self._folder / 'etcd'}",
                f"--listen-client-urls={self._etcd_url}",
                f"--advertise-client-urls={self._etcd_url}",
                f"--listen-peer-urls=http://127.0.0.1:{free_port()}",
                "--log-level=error",
                "--unsafe-no-fsync",
            )
        self._server = server = self._started(
            "kube-apiserver",
            str(binary),
            f"--etcd-servers={self._etcd_url}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--cert-dir={self.ca.parent}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--authorization-mode=RBAC",
            f"--token-auth-file={tokens}",
            # Nobody makes the account `default` of a namespace here: that is the controller manager's work.
            "--disable-admission-plugins=ServiceAccount",
        )

        def ready() -> bool:
            if server.poll() is not None:
                raise AssertionError((self._folder / "kube-apiserver.log").read_text()[-4000:])
            try:
                return self.user(ADMIN).call("GET", "/readyz").status == 200
            except (urllib3.exceptions.HTTPError, OSError):
                return False

        eventually(ready, "kube-apiserver")

    def user(self, name: str) -> User:
        """Somebody with a token of this server."""
        return User(self.url, self.ca, self._tokens[name])

    def service_account(self, namespace: str, name: str) -> str:
        """A token of a service account, as the kubelet asks for one."""
        path = f"{_collection('ServiceAccount', namespace)}/{name}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200}}
        answer = self.user(ADMIN).call("POST", path, body)
        assert answer.status == 201, answer
        return str(answer.body["status"]["token"])

    def kubeconfig(self, token: str) -> Path:
        """A kubeconfig file for the owner of a token."""
        ca = base64.b64encode(self.ca.read_bytes()).decode()
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {"server": self.url, "certificate-authority-data": ca}}],
            "users": [{"name": "me", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "me"}}],
            "current-context": "test",
        }
        file = self._folder / "kubeconfig"
        file.write_text(_yaml(content))
        return file

    def kill(self) -> None:
        """kill -9 of the API server; its etcd stays."""
        if self._server is not None:
            self._server.send_signal(signal.SIGKILL)
            self._server.wait()

    @contextmanager
    def elsewhere(self) -> Iterator[User]:
        """Nobody is at its address; another one serves the same objects. Afterwards the changes are forgotten."""
        self.kill()
        address, self._port = self._port, free_port()
        self.start()
        admin = self.user(ADMIN)
        yield admin
        revision = admin.call("GET", _collection("Namespace", "")).body["metadata"]["resourceVersion"]
        etcdctl = etcd_binary().with_name("etcdctl")
        subprocess.run([etcdctl, f"--endpoints={self._etcd_url}", "compact", revision], check=True, capture_output=True)
        self.kill()
        self._port = address
        self.start()

    def close(self) -> None:
        """Ends both."""
        for process in (self._server, self._etcd):
            if process is not None:
                process.kill()
                process.wait()

    def _started(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        guard = [shutil.which("setpriv") or "setpriv", "--pdeathsig", "KILL", "--"]
        with (self._folder / f"{name}.log").open("ab") as log:
            environment = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
            # There is room: it need not look for garbage so often.
            environment["GOGC"] = "400"
            return subprocess.Popen([*guard, *command], stdout=log, stderr=log, env=environment)


def built(tool: str) -> Path:
    """`kube-apiserver` or `helm`, built now where it is not there yet."""
    done = subprocess.run([HERE / "apiserver" / "build", tool], stdout=subprocess.PIPE, text=True, check=True)
    return Path(done.stdout.strip())


def install(admin: User) -> None:
    """The CRDs, the admission policy and the roles, as an administrator does; returns when all of it is in force."""
    admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "permille"}})
    for file in _installed():
        admin.apply(file)
    for kind in _KINDS:
        eventually(partial(_listed, admin, kind), kind)
    await_admission(admin)


def remove(admin: User) -> None:
    """What `install` brought, but for the namespace; returns when nothing of it is left."""
    for file in reversed(_installed()):
        for body in _read_yaml(file.read_text()):
            kind, namespace, name = body["kind"], body["metadata"].get("namespace", ""), body["metadata"]["name"]
            assert admin.delete(kind, namespace, name).status in (200, 202)
            eventually(partial(_gone, admin, kind, namespace, name), f"the end of {kind} {name}")


def clear(admin: User) -> None:
    """Deletes all objects of permille's kinds; nobody works on them any more."""
    for kind in _KINDS:
        for body in admin.call("GET", _collection(kind, "").replace("namespaces//", "")).body["items"]:
            namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
            if "finalizers" in body["metadata"]:
                admin.patch(kind, namespace, name, {"metadata": {"finalizers": None}})
            admin.delete(kind, namespace, name)


def _installed() -> list[Path]:
    return sorted((CHART / "crds").glob("*.yaml")) + sorted((CHART / "files").glob("*.yaml"))


def _gone(admin: User, kind: str, namespace: str, name: str) -> bool:
    return admin.get(kind, namespace, name).status == 404


def await_admission(admin: User) -> None:
    """Returns when the admission policy refuses: a server needs a moment for a new one."""
    rbac = "rbac.authorization.k8s.io"
    rules = [{"apiGroups": ["permille.dev"], "resources": ["tracerequests"], "verbs": ["create"]}]
    metadata = {"name": "nobody", "namespace": "permille"}
    admin.create({"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata, "rules": rules})
    binding = {"apiVersion": f"{rbac}/v1", "kind": "RoleBinding", "metadata": metadata}
    reference = {"apiGroup": rbac, "kind": "Role", "name": "nobody"}
    admin.create({**binding, "roleRef": reference, "subjects": [{"apiGroup": rbac, "kind": "User", "name": "nobody"}]})
    path = _collection("TraceRequest", "permille") + "?dryRun=All"
    spec = {"target": {"podName": "none"}}
    body = {"apiVersion": "permille.dev/v1alpha1", "kind": "TraceRequest", "metadata": {"name": "probe"}, "spec": spec}
    nobody = admin.as_user("nobody")
    eventually(lambda: "you may trace only" in nobody.call("POST", path, body).message, "the policy")


def _listed(admin: User, kind: str) -> bool:
    return admin.call("GET", _collection(kind, "default")).status == 200


def _collection(kind: str, namespace: str) -> str:
    return _COLLECTIONS[kind].format(namespace)
