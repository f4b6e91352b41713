"""One API server for all tests, and helm."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kubernetes.api_server import ADMIN, ApiServer, User, built, clear, install
from tests.kubernetes.chart import Helm

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
