"""Other systems record a real program on a real mesh: with both clients, the example, and what the user guide shows."""

from __future__ import annotations

import asyncio
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pool, json_format, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from permille.client import AsyncClient, Cancelled, Client, FailedPrecondition, NotFound, session_set, wish

from tests.whole_mesh import WholeMesh

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "docs" / "user-guide.md").read_text()
# What the guide's examples call, and whom they record.
ADDRESS, PROGRAM = "127.0.0.1:7600", "redis-server"


@pytest.fixture(scope="module")
def address(mesh: WholeMesh) -> str:
    """Where coverage listens."""
    return mesh.endpoint("coverage").address


@pytest.fixture(scope="module")
def program(mesh: WholeMesh, busy: Path) -> Iterator[int]:
    """The pid of a program called `busy`."""
    with mesh.running(str(busy), "paced") as process:
        yield process.pid


def test_a_start_that_is_repeated_records_once_and_its_progress_is_told(
    mesh: WholeMesh, address: str, program: int
) -> None:
    with Client(address) as client:
        wanted = wish(pids=[program], period_ms=100)
        assert [list(node.pids) for node in client.plan(wanted, outlook=True).nodes] == [[program]]
        first, second = client.start(wanted, request_id="from-a-test"), client.start(wanted, request_id="from-a-test")
        assert first.name == second.name
        stages: list[str] = []
        result = client.wait(first, progress=lambda progress: stages.append(progress.stage))
        (session,) = result.sessions
        assert set(stages) <= {"PLANNING", "RECORDING", "STORING", "DECODING"}
        assert client.get(first.name).done
        assert client.wait(first.name) == result
        assert [one.request_id for one in client.operations(page_size=1)].count("from-a-test") == 1
        seen = client.coverage(sessions=[session])
        assert {"step_of_work", "piece_of_work"} <= {function.name for function in seen.functions}
        assert [replica.session for replica in seen.replicas] == [session]
        walked = client.coverage(operation=first.name, edges=1, paths=3)
        assert (len(walked.edges), 0 < len(walked.paths) <= 3) == (1, True)
        same = client.diff(session_set([session]), session_set(operation=first.name), measure="calls", paths=3)
        assert (same.similarity, list(same.functions), list(same.paths)) == (1.0, [], [])
    assert [one["state"] for one in mesh.sessions() if session.endswith(one["session_id"])] == ["DECODED"]


async def test_one_task_waits_while_another_one_cancels(address: str, program: int) -> None:
    async with AsyncClient(address) as client:
        operation = await client.start(wish(process_name="busy", purpose="anomaly", period_ms=60_000))
        recording = asyncio.Event()

        def tell(progress: Any) -> None:
            if progress.stage == "RECORDING":
                recording.set()

        waiting = asyncio.create_task(client.wait(operation, progress=tell))
        await asyncio.wait_for(recording.wait(), 120)
        with pytest.raises(FailedPrecondition, match="is being recorded"):
            async with AsyncClient(address, patience_s=0.0) as other:
                await other.start(wish(pids=[program]))
        await client.cancel(operation)
        with pytest.raises(Cancelled) as ended:
            await waiting
        (session,) = ended.value.metadata["sessions"].split(",")
        assert session.startswith("nodes/")
        with pytest.raises(NotFound, match="no recordable process is named 'nobody'"):
            await client.start(wish(process_name="nobody"))
        with pytest.raises(FailedPrecondition, match="session nobody is not decoded"):
            await client.diff(session_set(["nobody"]), session_set(["nobody"]))


def test_the_example_records_and_prints_what_it_saw(address: str, program: int) -> None:
    told = run_python(str(ROOT / "examples" / "record_program.py"), address, "busy")
    assert "step_of_work" in told
    assert re.search(r"permille report nodes/\S+/sessions/\S+\n", told)


@pytest.mark.parametrize("number", [0, 1])
def test_the_guides_python_runs(number: int, address: str, program: int) -> None:
    code = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)[number]
    assert ADDRESS in code
    assert PROGRAM in code
    told = run_python("-c", code.replace(ADDRESS, address).replace(PROGRAM, "busy"))
    assert "nodes/" in told


def test_the_guides_grpcurl_calls_are_what_reflection_offers(address: str, program: int) -> None:
    lines = [shlex.split(line) for line in re.findall(r"^\$ (grpcurl .*)$", GUIDE, re.MULTILINE)]
    with grpc.insecure_channel(address) as channel:
        pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
        described = [pool.FindServiceByName(words[-1]).full_name for words in lines if "describe" in words]
        plan, start, wait = [(words[-1], words[words.index("-d") + 1]) for words in lines if "-d" in words]
        planned = called(channel, pool, *plan)
        started = called(channel, pool, *start).operation
        ended = called(channel, pool, wait[0], re.sub(r"operations/[^\"]+", started.name, wait[1])).operation
    assert described == ["permille.coverage.v1.CoverageService"]
    assert [list(node.pids) for node in planned.plan.nodes] == [[program]]
    assert (started.request_id, ended.name, ended.done, ended.error.message) == ("order-4712", started.name, True, "")


def called(channel: grpc.Channel, pool: descriptor_pool.DescriptorPool, method: str, asked: str) -> Any:
    """The answer to a request in JSON, by what reflection says of the method."""
    service, _, name = method.partition("/")
    described = pool.FindServiceByName(service).methods_by_name[name]
    types = [message_factory.GetMessageClass(one) for one in (described.input_type, described.output_type)]
    call: Any = channel.unary_unary(f"/{method}", types[0].SerializeToString, types[1].FromString)
    return call(json_format.Parse(asked.replace(PROGRAM, "busy"), types[0]()), timeout=240)


def run_python(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout
