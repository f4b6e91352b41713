"""A mesh that is asked in this process: a command for each question would be most of what these tests cost."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from permille.api.controller.v1 import controller_pb2
from permille.cli.client import MeshClient, answer
from permille.cli.session_list import list_sessions

from tests.processes import PATIENCE_S, Process, await_true, child
from tests.whole_mesh import WholeMesh, new_mesh


class AskedMesh(WholeMesh):
    """What `WholeMesh` asks by commands, asked by the code that they run."""

    def sessions(self) -> list[dict[str, Any]]:
        listed = self.asked(list_sessions)
        assert not listed.gaps, listed.gaps
        return [{**asdict(one), "session_id": one.session_id} for one in listed.sessions]

    def recorded(self) -> dict[str, str]:
        """The state of each session, by its id, as the controllers alone know them."""

        async def listed(client: MeshClient) -> dict[str, str]:
            controller = await client.controller()
            request = controller_pb2.ListSessionsRequest(parent="nodes/-", page_size=1000)
            sessions = (await answer(controller.ListSessions(request))).sessions
            return {one.name.rpartition("/")[2]: controller_pb2.Session.State.Name(one.state) for one in sessions}

        return self.asked(listed)

    def report(self, session: str) -> dict[str, Any]:
        """Of what `permille report` says the rows that it reads."""
        where = f"WHERE session_id = '{session}'"
        (row,) = self.rows(f"SELECT * FROM sessions {where}")
        functions, losses = (self.rows(f"SELECT * FROM {table} {where}") for table in ("functions", "losses"))
        return {"session": row, "functions": functions, "losses": [one for one in losses if one["segment"] >= 0]}

    @contextlib.contextmanager
    def running(self, *command: str, **options: Any) -> Iterator[Process]:
        """A program as docs/kubernetes.md starts it in a pod, when it is ready to be recorded."""

        async def node(client: MeshClient) -> controller_pb2.Node:
            controller = await client.controller()
            return (await answer(controller.GetNode(controller_pb2.GetNodeRequest()))).node

        told = self.asked(node)
        options = {"stdout": subprocess.DEVNULL, **options}
        with child(
            [*told.launch_prefix, *command], env={**os.environ, **told.launch_environment}, **options
        ) as process:
            await_true(lambda: self.recorder(process.pid) or process.poll() is not None, PATIENCE_S, command[0])
            assert process.poll() is None, f"{command} ended with {process.returncode}"
            yield process


def new_asked_mesh(state: Path, **variables: str) -> AskedMesh:
    """One that is not started yet."""
    mesh = new_mesh(state, **variables)
    return AskedMesh(mesh.state, mesh.vpt_dir, mesh.variables)
