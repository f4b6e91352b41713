"""One API server for the tests of a module, and helm."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kubernetes.api_server import ADMIN, ApiServer, User, built, install
from tests.kubernetes.chart import Helm

USERS = ("alice", "bob", "carol", "dave")


@pytest.fixture(scope="module")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """A running one with permille's CRDs, admission policy and roles."""
    server = ApiServer(tmp_path_factory.mktemp("kubernetes"), USERS)
    try:
        server.start()
        install(server.user(ADMIN))
        yield server
    finally:
        server.close()


@pytest.fixture
def admin(api_server: ApiServer) -> User:
    """Who may everything."""
    return api_server.user(ADMIN)


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """The command."""
    return Helm(built("helm"), tmp_path_factory.mktemp("helm"))
