"""One API server and one mesh for all tests, an operator between them, and helm."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from permille.mesh.config import default_node

from tests.kubernetes.api_server import ADMIN, ApiServer, User, built, clear, install
from tests.kubernetes.asked_mesh import AskedMesh, new_asked_mesh
from tests.kubernetes.chart import Helm
from tests.kubernetes.operator_process import Operator
from tests.kubernetes.pods import running_pod
from tests.kubernetes.trace_requests import NAMESPACE
from tests.processes import Process

_number = itertools.count()
USERS = ("alice", "bob", "carol", "dave")


@pytest.fixture(scope="session")
def one_api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """One for all: starting another takes ten seconds."""
    server = ApiServer(tmp_path_factory.mktemp("kubernetes"), USERS)
    try:
        server.start()
        install(server.user(ADMIN))
        yield server
    finally:
        server.close()


@pytest.fixture(scope="module")
def api_server(one_api_server: ApiServer) -> Iterator[ApiServer]:
    """A running one with permille's CRDs, admission policy and roles, and none of its objects."""
    yield one_api_server
    clear(one_api_server.user(ADMIN))


@pytest.fixture
def admin(api_server: ApiServer) -> User:
    """Who may everything."""
    return api_server.user(ADMIN)


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """The command."""
    return Helm(built("helm"), tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AskedMesh]:
    """One for all; its coverage has room for one of the programs at a time in the namespace."""
    started = new_asked_mesh(
        tmp_path_factory.mktemp("mesh"), PERMILLE_COVERAGE_QUOTAS=f'{{"{NAMESPACE}": {{"cores": 3}}}}'
    )
    try:
        started.start()
        yield started
    finally:
        started.close()


@pytest.fixture(scope="module")
def operator(mesh: AskedMesh, api_server: ApiServer) -> Iterator[Operator]:
    """A running one."""
    admin = api_server.user(ADMIN)
    with_namespace(admin, NAMESPACE)
    kubeconfig = api_server.kubeconfig(api_server.service_account("permille", "permille-operator"))
    running = Operator(mesh, kubeconfig)
    running.start()
    yield running
    running.kill()
    print(running.log.read_text()[-6000:])


@pytest.fixture(scope="session")
def target(mesh: AskedMesh, busy: Path) -> Iterator[Process]:
    """A program that executes little."""
    with mesh.running(str(busy), "paced") as process:
        yield process


@pytest.fixture
def changing(tmp_path: Path) -> Path:
    """A program of which each recording shows something new; of a name that nobody has recorded before."""
    program = tmp_path / f"changing-{next(_number)}"
    source = Path(__file__).with_name("changing.c")
    subprocess.run(["gcc", "-O1", "-g", "-o", program, source], check=True)
    return program


@pytest.fixture(scope="session")
def pod(one_api_server: ApiServer, target: Process) -> Iterator[str]:
    """A pod of this machine with the program in its container; its name."""
    admin = one_api_server.user(ADMIN)
    with_namespace(admin, NAMESPACE)
    with running_pod(admin, NAMESPACE, "web-0", app="web", node=default_node(), pid=target.pid) as name:
        yield name


@pytest.fixture
def elsewhere(operator: Operator, admin: User) -> str:
    """A namespace of the test's own, with an operator that looks after it."""
    name = f"elsewhere-{next(_number)}"
    admin.made({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


def with_namespace(admin: User, name: str) -> None:
    if admin.get("Namespace", "", name).status == 404:
        admin.made({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
