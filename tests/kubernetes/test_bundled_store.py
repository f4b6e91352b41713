"""The chart's S3 server: a mesh lives on it, and what it has is there after a death, a loss of power and a restore."""

from __future__ import annotations

import asyncio
import random
import re
import shlex
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from permille.mesh.errors import Code, PermilleError
from permille.mesh.store import open_store
from permille.mesh.table_schemas import SCHEMAS
from permille.mesh.tables import Tables

from tests.kubernetes.bundled_store import REPOSITORY, BundledStore, mounted
from tests.kubernetes.chart import Helm
from tests.whole_mesh import new_mesh, session_of
from tests.whole_session import assert_did_its_work, assert_whole, caught_decoding, waiting_session

pytestmark = pytest.mark.slow
OBJECTS = {f"raw/s1/{size}": random.Random(size).randbytes(size) for size in (10, 5_000, 300_000, 6 << 20, 25 << 20)}


@pytest.fixture
def store(helm: Helm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BundledStore]:
    """One that is not started yet; this process and its children know it as the services do."""
    for name in ("certs", "volume"):
        (tmp_path / name).mkdir()
    made = BundledStore(helm, tmp_path / "certs", tmp_path / "volume")
    for name, value in made.client.items():
        monkeypatch.setenv(name, value)
    yield made
    made.kill()


@contextmanager
def disk(folder: Path, size: str) -> Iterator[tuple[Path, Path]]:
    """A new file system: the file that is its disk, and where it is mounted."""
    image = folder / "disk"
    subprocess.run(["truncate", "-s", size, image], check=True)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    with on_disk(image, folder / "mounted") as place:
        yield image, place


@contextmanager
def on_disk(image: Path, place: Path) -> Iterator[Path]:
    mounted(image, place)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_a_mesh_lives_on_it_though_it_is_killed(store: BundledStore, busy: Path, tmp_path: Path) -> None:
    store.start()
    with ExitStack() as ended:
        mesh = new_mesh(tmp_path, PERMILLE_STORE=store.url)
        ended.callback(mesh.close)
        mesh.start()
        target = ended.enter_context(mesh.running(str(busy), "paced"))
        with mesh.started("trace", "--pid", str(target.pid), "--for", "1s", "--json") as trace:
            mesh.await_recording(target.pid)
            store.kill()
            waiting = waiting_session(mesh, trace)
            assert waiting["state"] == "STORING" and "localhost" in waiting["error_message"]
            store.start()
            first = session_of(mesh.finished(trace))
        assert_did_its_work(assert_whole(mesh, first))

        spinning = ended.enter_context(mesh.running(str(busy), "spinning"))
        with caught_decoding(mesh, spinning.pid) as trace:
            store.kill()
            assert trace.poll() is None
            store.start()
            second = session_of(mesh.finished(trace))
        assert_did_its_work(assert_whole(mesh, second))

        mesh.command("delete", second, "--yes")
        left = asyncio.run(keys(store.url))
        assert any(first in key for key in left) and not any(second in key for key in left)
        # Nobody else on the node may read it.
        assert not [file for file in store.volume.rglob("*") if file.stat().st_mode & 0o077]

        saving, restoring = backup_commands()
        run_in(store.volume, saving, tmp_path)
        store.kill()
        store.volume = tmp_path / "another"
        store.volume.mkdir()
        store.start()
        run_in(store.volume, restoring, tmp_path)
        assert_did_its_work(assert_whole(mesh, first))
        assert asyncio.run(keys(store.url)) == left


def backup_commands() -> tuple[str, str]:
    """What docs/operations.md has the container do to save its volume, and to restore it."""
    text = (REPOSITORY / "docs/operations.md").read_text()
    saving, restoring = re.findall(r"kubectl .* permille-store-0 -- (tar .*)", text)
    return saving, restoring


def run_in(volume: Path, command: str, folder: Path) -> None:
    here = command.replace("/var/lib/store", shlex.quote(str(volume)))
    subprocess.run(["bash", "-c", here], cwd=folder, check=True)


async def keys(url: str) -> list[str]:
    """Of all objects, each of which is read, and held against its checksum."""
    store = open_store(url)
    found = [info.key async for info in store.list()]
    for key in found:
        if not key.startswith("tables/"):
            await store.get(key)
    return found


def test_what_it_has_acknowledged_is_on_the_disk(store: BundledStore, tmp_path: Path) -> None:
    async def put() -> None:
        objects = open_store(store.url)
        for key, content in OBJECTS.items():
            await objects.put_stream(key, content)
        await objects.put_stream("raw/s1/10", b"replaced")
        await Tables(objects).replace_session("losses", "s1", [losses("s1")])

    async def read() -> None:
        objects = open_store(store.url)
        for key, content in {**OBJECTS, "raw/s1/10": b"replaced"}.items():
            assert await objects.get(key) == content
        assert (await Tables(objects).session("losses", "s1")).count_rows() == 1

    after = tmp_path / "after"
    with disk(tmp_path, "300M") as (image, store.volume):
        store.start()
        asyncio.run(put())
        # A node that has lost its power has what is on the disk now, and nothing that is in memory.
        subprocess.run(["cp", image, tmp_path / "left"], check=True)
        store.kill()
    with on_disk(tmp_path / "left", after):
        store.volume = after
        store.start()
        asyncio.run(read())
        store.kill()


def test_a_full_volume_is_told_and_keeps_what_it_has(store: BundledStore, tmp_path: Path) -> None:
    async def fill() -> None:
        objects = open_store(store.url)
        await objects.put_stream("raw/s1/fits", b"x" * 1000)
        for size in (7 << 20, 25 << 20):
            with pytest.raises(PermilleError, match="raw/s1/large") as error:
                while True:
                    await objects.put_stream(f"raw/s1/large-{random.random()}", bytes(size))
            assert (error.value.code, error.value.reason) == (Code.RESOURCE_EXHAUSTED, "STORE_FULL")
        assert await objects.get("raw/s1/fits") == b"x" * 1000
        # There is room again.
        await objects.delete_prefix("raw/s1/")
        await objects.put_stream("raw/s2/large", bytes(7 << 20))

    with disk(tmp_path, "32M") as (_, store.volume):
        store.start()
        asyncio.run(fill())
        store.kill()


def test_of_those_who_put_at_once_where_nothing_is_one_succeeds(store: BundledStore) -> None:
    store.start()
    endpoint = store.url.partition("endpoint=")[2]
    # As permille asks: what is sent in chunks it refuses before the last one, and closes the connection.
    config = Config(request_checksum_calculation="when_required")
    client: Any = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", config=config)

    def put(key: str) -> bool:
        try:
            client.put_object(Bucket="traces", Key=key, Body=b"x" * 1000, IfNoneMatch="*")
        except ClientError as error:
            assert error.response["Error"]["Code"] == "PreconditionFailed"
            return False
        return True

    with ThreadPoolExecutor(8) as writers:
        for number in range(50):
            assert list(writers.map(put, [f"log/{number}"] * 8)).count(True) == 1


def losses(session_id: str) -> pa.RecordBatch:
    row: dict[str, Any] = {one.name: 1 if pa.types.is_integer(one.type) else "x" for one in SCHEMAS["losses"]}
    row |= {"session_id": session_id, "day": date(2026, 11, 21)}
    return pa.RecordBatch.from_pylist([row], schema=SCHEMAS["losses"])
