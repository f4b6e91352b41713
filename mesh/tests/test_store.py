"""The object store: the same behaviour of both back ends, on a real disk and a real S3 server."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import resource
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from permille.mesh.config import MeshConfig
from permille.mesh.errors import Code, PermilleError, Unavailable
from permille.mesh.store import ObjectStore, open_store
from permille.mesh.store.folder import FolderStore
from permille.mesh.store.s3 import S3Store
from permille.mesh.store.s3_connection import S3Connection, S3Request

PART = 5 << 20
LARGE = random.Random(1).randbytes(3 * PART + 12345)


@pytest.fixture(params=["folder", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "folder":
        return (tmp_path / "store").as_uri()
    return str(request.getfixturevalue("s3_url"))


@pytest.fixture
def store(url: str) -> ObjectStore:
    return opened(url)


def opened(url: str) -> ObjectStore:
    store = open_store(url)
    return with_small_parts(url) if isinstance(store, S3Store) else store


def with_small_parts(url: str) -> S3Store:
    parts = urlsplit(url)
    return S3Store(parts.netloc, parts.path.strip("/"), endpoint=parts.query.removeprefix("endpoint="), part_bytes=PART)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("mounting a small disk needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


async def in_pieces(data: bytes, size: int = 1_000_003, *, fail_after: int | None = None) -> AsyncIterator[bytes]:
    for offset in range(0, len(data), size):
        if fail_after is not None and offset >= fail_after:
            raise ConnectionResetError("the source broke")
        yield data[offset : offset + size]


async def keys(store: ObjectStore, prefix: str = "") -> list[str]:
    return [info.key async for info in store.list(prefix)]


def code_of(error: pytest.ExceptionInfo[PermilleError]) -> tuple[Code, str]:
    return error.value.code, error.value.reason


@pytest.mark.parametrize("data", [b"", b"x", b"some bytes" * 1000, LARGE], ids=["empty", "one", "small", "large"])
async def test_what_was_put_is_read_with_its_checksum(store: ObjectStore, data: bytes) -> None:
    sha256 = hashlib.sha256(data).hexdigest()
    put = await store.put_stream("raw/s1/segment-0.pt.zst", in_pieces(data))
    assert (put.key, put.size_bytes, put.sha256) == ("raw/s1/segment-0.pt.zst", len(data), sha256)
    assert await store.get("raw/s1/segment-0.pt.zst") == data
    assert (await store.head("raw/s1/segment-0.pt.zst")).sha256 == sha256


async def test_a_reader_may_know_what_an_object_is(store: ObjectStore) -> None:
    await store.put_stream("raw/s1/segment", b"these")
    known, other = (hashlib.sha256(data).hexdigest() for data in (b"these", b"others"))
    assert await store.get("raw/s1/segment", sha256=known) == b"these"
    assert [piece async for piece in store.open_read("raw/s1/segment", sha256=known)] == [b"these"]
    with pytest.raises(PermilleError, match="raw/s1/segment") as error:
        await store.get("raw/s1/segment", sha256=other)
    assert code_of(error)[0] == Code.DATA_LOSS
    with pytest.raises(PermilleError, match="raw/s1/segment"):
        _ = [piece async for piece in store.open_read("raw/s1/segment", sha256=other)]


async def test_a_put_replaces_and_another_store_object_sees_it(url: str) -> None:
    store = opened(url)
    for data in (b"one", LARGE, b"two", LARGE[1:]):
        await store.put_stream("a/b", data)
        assert await opened(url).get("a/b") == data
    assert await keys(store) == ["a/b"]


async def test_objects_are_listed_in_order_by_prefix(store: ObjectStore) -> None:
    for key in ("raw/10/b", "raw/1/b", "raw/1/a", "binaries/ff"):
        await store.put_stream(key, key.encode())
    assert await keys(store) == ["binaries/ff", "raw/1/a", "raw/1/b", "raw/10/b"]
    assert await keys(store, "raw/1/") == ["raw/1/a", "raw/1/b"]
    assert await keys(store, "raw/1") == ["raw/1/a", "raw/1/b", "raw/10/b"]
    assert await keys(store, "nothing/") == []


async def test_deleting_leaves_nothing(store: ObjectStore) -> None:
    for key in ("raw/10/b", "raw/1/b", "raw/1/a"):
        await store.put_stream(key, LARGE if key == "raw/1/a" else b"12345")
    assert await store.delete("raw/10/b") is True
    assert await store.delete("raw/10/b") is False
    freed = await store.delete_prefix("raw/1/")
    assert (freed.objects, freed.size_bytes) == (2, len(LARGE) + 5)
    assert await keys(store) == []
    assert not await store.exists("raw/1/a")


async def test_a_prefix_to_delete_is_a_whole_folder(store: ObjectStore) -> None:
    with pytest.raises(PermilleError) as error:
        await store.delete_prefix("raw/1")
    assert code_of(error) == (Code.INVALID_ARGUMENT, "BAD_OBJECT_KEY")


async def test_what_is_not_there_is_named(store: ObjectStore) -> None:
    assert not await store.exists("raw/none")
    for read in (store.get, store.head):
        with pytest.raises(PermilleError, match="raw/none") as error:
            await read("raw/none")
        assert code_of(error) == (Code.NOT_FOUND, "OBJECT_NOT_FOUND")
        assert error.value.help


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "../a", "a/../b", "a/.b", "a\\b", "a\nb", "a\0b", "a" * 901])
async def test_keys_that_could_leave_the_store_are_refused(store: ObjectStore, key: str) -> None:
    for use in (store.get, store.head, store.exists, store.delete):
        with pytest.raises(PermilleError) as error:
            await use(key)
        assert code_of(error) == (Code.INVALID_ARGUMENT, "BAD_OBJECT_KEY")
    with pytest.raises(PermilleError):
        await store.put_stream(key, b"")


async def test_a_broken_source_leaves_the_object_as_it_was(store: ObjectStore) -> None:
    await store.put_stream("a/old", b"old")
    for key in ("a/old", "a/new"):
        with pytest.raises(ConnectionResetError):
            await store.put_stream(key, in_pieces(LARGE, fail_after=2 * PART + 1))
    assert await store.get("a/old") == b"old"
    assert await keys(store) == ["a/old"]


async def test_an_interrupted_put_ends_the_next_time(store: ObjectStore) -> None:
    with pytest.raises(ConnectionResetError):
        await store.put_stream("a/b", in_pieces(LARGE, fail_after=2 * PART + 1))
    await store.put_stream("a/b", in_pieces(LARGE))
    assert await store.get("a/b") == LARGE


async def test_what_interrupted_puts_left_is_swept(store: ObjectStore, url: str, tmp_path: Path) -> None:
    if url.startswith("file:"):
        # Only the death of the process leaves anything in a folder.
        code = (
            "import asyncio, os, sys\nfrom permille.mesh.store import open_store\n"
            "async def source():\n    yield b'x' * 100\n    os._exit(9)\n"
            "asyncio.run(open_store(sys.argv[1]).put_stream('a/b', source()))"
        )
        assert subprocess.run([sys.executable, "-c", code, url], check=False).returncode == 9
    else:
        with pytest.raises(ConnectionResetError):
            await store.put_stream("a/b", in_pieces(LARGE, fail_after=2 * PART + 1))
    assert await keys(store) == []
    assert await store.sweep(3600) == 0
    assert await store.sweep(-60) == 1
    assert await store.sweep(-60) == 0


async def test_many_writers_of_one_key_leave_one_of_theirs(url: str) -> None:
    data = [bytes([number]) * 100_000 for number in range(8)]
    await asyncio.gather(*(opened(url).put_stream("a/b", one) for one in data))
    assert await opened(url).get("a/b") in data


@pytest.mark.parametrize("kind", ["folder", "s3"])
def test_of_many_who_put_what_is_new_one_is_first(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = tmp_path.as_uri() if kind == "folder" else str(request.getfixturevalue("conditional_s3_url"))
    (tmp_path / "log").mkdir()
    store, key = open_store(url), "log/0.json"
    assert store.read_plain(key) is None
    with ThreadPoolExecutor() as threads:
        won = list(threads.map(lambda number: store.put_new(key, b"%d" % number), range(8)))
    assert sorted(won) == [False] * 7 + [True]
    assert store.read_plain(key) == b"%d" % won.index(True)
    assert not list(tmp_path.glob(".partial/*"))


def test_what_is_new_is_not_put_into_a_folder_that_is_away(tmp_path: Path) -> None:
    store = open_store((tmp_path / "mounted").as_uri())
    asyncio.run(store.put_stream("binaries/1", b"1"))
    with pytest.raises(PermilleError) as error:
        store.put_new("log/0.json", b"")
    assert code_of(error) == (Code.NOT_FOUND, "OBJECT_NOT_FOUND")
    (tmp_path / "mounted").rename(tmp_path / "elsewhere")
    for use in (lambda: store.put_new("log/0.json", b""), lambda: store.read_plain("log/0.json")):
        with pytest.raises(Unavailable):
            use()
    assert not (tmp_path / "mounted").exists()


async def test_s3_is_asked_for_nothing_else_while_an_object_is_read(s3_url: str, asked: list[S3Request]) -> None:
    store = with_small_parts(s3_url)
    await store.put_stream("large", in_pieces(LARGE))
    asked.clear()
    pieces = store.open_read("large")
    read = len(await anext(pieces))
    while read < len(LARGE):
        read += len(await anext(pieces))
        assert [request.operation for request in asked] == ["GetObject"]
    assert [piece async for piece in pieces] == []
    assert [request.operation for request in asked] == ["GetObject", "GetObject"]
    asked.clear()
    assert await store.get("large", sha256=hashlib.sha256(LARGE).hexdigest()) == LARGE
    assert [request.operation for request in asked] == ["GetObject"]


async def test_two_writers_of_the_same_large_object_both_succeed(url: str) -> None:
    results = await asyncio.gather(*(opened(url).put_stream("a/b", in_pieces(LARGE)) for _ in range(2)))
    assert {result.sha256 for result in results} == {hashlib.sha256(LARGE).hexdigest()}
    assert await opened(url).get("a/b") == LARGE


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("how", ["changed", "truncated"])
async def test_a_damaged_object_is_never_returned(url: str, how: str, large: bool, request: Any) -> None:
    store = opened(url)
    data = LARGE if large else b"some content" * 100
    await store.put_stream("a/b", data)
    spoilt = data[:-1] if how == "truncated" else b"X" + data[1:]
    if url.startswith("file:"):
        (Path(urlsplit(url).path) / "a/b").write_bytes(spoilt)
    else:
        client = request.getfixturevalue("s3_client")
        bucket, prefix = urlsplit(url).netloc, urlsplit(url).path.strip("/")
        kept = client.head_object(Bucket=bucket, Key=f"{prefix}/a/b")["Metadata"]
        client.put_object(Bucket=bucket, Key=f"{prefix}/a/b", Body=spoilt, Metadata=kept)
    with pytest.raises(PermilleError, match="a/b") as error:
        await store.get("a/b")
    assert code_of(error) == (Code.DATA_LOSS, "OBJECT_DAMAGED")
    await store.put_stream("a/b", data)
    assert await store.get("a/b") == data


class TestFolder:
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        return tmp_path / "store"

    @pytest.fixture
    def store(self, root: Path) -> ObjectStore:
        return open_store(root.as_uri())

    async def test_objects_are_plain_files(self, store: ObjectStore, root: Path) -> None:
        await store.put_stream("a/b", b"plain")
        assert (root / "a/b").read_bytes() == b"plain"

    async def test_killed_at_any_moment_an_object_is_old_or_new(self, store: ObjectStore, root: Path) -> None:
        code = (
            "import asyncio, sys\nfrom permille.mesh.store import open_store\n"
            "async def run():\n    store = open_store(sys.argv[1])\n    print(flush=True)\n"
            "    while True:\n"
            "        for content in (b'a' * 50_000, b'b' * 70_000):\n"
            "            await store.put_stream('a/b', content)\n"
            "asyncio.run(run())"
        )
        wanted = {b"a" * 50_000, b"b" * 70_000}
        await store.put_stream("a/b", b"a" * 50_000)
        for pause in range(1, 13):
            writer = subprocess.Popen([sys.executable, "-c", code, root.as_uri()], stdout=subprocess.PIPE)
            assert writer.stdout is not None
            writer.stdout.readline()
            await asyncio.sleep(0.0037 * pause)
            assert await store.get("a/b") in wanted
            writer.kill()
            writer.wait()
            assert await store.get("a/b") in wanted
            assert (await store.head("a/b")).sha256 in {hashlib.sha256(one).hexdigest() for one in wanted}

    async def test_a_full_disk_is_told(self, small: Path) -> None:
        store = open_store(small.as_uri())
        await store.put_stream("a/fits", b"x" * 1000)
        with pytest.raises(PermilleError, match="a/large") as error:
            await store.put_stream("a/large", in_pieces(LARGE))
        assert code_of(error) == (Code.RESOURCE_EXHAUSTED, "STORE_FULL")
        assert "permille delete" in error.value.help
        assert await store.get("a/fits") == b"x" * 1000
        await store.put_stream("a/after", b"there is room again" * 100)

    async def test_a_disk_that_is_read_only_is_told(self, small: Path) -> None:
        store = open_store(small.as_uri())
        await store.put_stream("a/before", b"there")
        subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
        with pytest.raises(PermilleError, match="a/after") as error:
            await store.put_stream("a/after", b"")
        assert code_of(error) == (Code.PERMISSION_DENIED, "STORE_DENIED")
        assert "remount,rw" in error.value.help
        assert await store.get("a/before") == b"there"

    async def test_a_folder_without_rights_is_told(self, store: ObjectStore, root: Path) -> None:
        if os.getuid() == 0:
            code = (
                "import asyncio, os, sys\nfrom permille.mesh.errors import PermilleError\n"
                "from permille.mesh.store import open_store\nos.setuid(65534)\n"
                "try:\n    asyncio.run(open_store('file:///etc/permille-test').put_stream('a', b''))\n"
                "except PermilleError as error:\n    print(error.reason, error.code.name)"
            )
            ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
            assert ran.stdout.split() == ["STORE_DENIED", "PERMISSION_DENIED"]
        else:
            with pytest.raises(PermilleError) as error:
                await open_store("file:///etc/permille-test").put_stream("a", b"")
            assert code_of(error) == (Code.PERMISSION_DENIED, "STORE_DENIED")

    async def test_too_few_open_files_are_none_of_its_faults(self, store: ObjectStore) -> None:
        await store.put_stream("a", b"there")
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
        try:
            with pytest.raises(PermilleError, match="open files") as error:
                await store.get("a")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert code_of(error) == (Code.RESOURCE_EXHAUSTED, "MACHINE_EXHAUSTED")

    async def test_an_object_is_no_folder(self, store: ObjectStore) -> None:
        await store.put_stream("a/b", b"1")
        for key in ("a/b/c", "a"):
            with pytest.raises(PermilleError, match=key) as error:
                await store.put_stream(key, b"2")
            assert code_of(error) == (Code.INVALID_ARGUMENT, "BAD_OBJECT_KEY")
        assert await store.get("a/b") == b"1"

    async def test_of_a_folder_and_below_an_object_there_is_none_to_read(self, store: ObjectStore) -> None:
        await store.put_stream("a/b", b"1")
        for key in ("a", "a/b/c"):
            for read in (store.get, store.head, lambda key: anext(store.open_read(key))):
                with pytest.raises(PermilleError, match=key) as error:
                    await read(key)
                assert code_of(error) == (Code.NOT_FOUND, "OBJECT_NOT_FOUND")

    async def test_a_file_in_the_place_of_the_folder_is_told(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"")
        with pytest.raises(PermilleError) as error:
            await open_store((tmp_path / "file").as_uri()).put_stream("a/b", b"")
        assert code_of(error) == (Code.FAILED_PRECONDITION, "STORE_NOT_A_FOLDER")


class TestS3:
    async def test_parts_already_there_are_not_sent_again(self, s3_url: str, asked: list[S3Request]) -> None:
        with pytest.raises(ConnectionResetError):
            await with_small_parts(s3_url).put_stream("a/b", in_pieces(LARGE, fail_after=2 * PART + 2_000_000))
        store = with_small_parts(s3_url)
        asked.clear()
        await store.put_stream("a/b", in_pieces(LARGE))
        assert [one.query["partNumber"] for one in asked if one.operation == "UploadPart"] == ["3", "4"]
        assert await store.get("a/b") == LARGE

    async def test_parts_that_differ_are_sent_again(self, s3_url: str) -> None:
        with pytest.raises(ConnectionResetError):
            await with_small_parts(s3_url).put_stream("a/b", in_pieces(LARGE, fail_after=2 * PART + 2_000_000))
        other = LARGE[:PART] + b"other" + LARGE[PART + 5 : 2 * PART + 7]
        await with_small_parts(s3_url).put_stream("a/b", in_pieces(other))
        assert await with_small_parts(s3_url).get("a/b") == other

    async def test_a_server_that_is_away_is_told(self, s3_credentials: None) -> None:
        store = open_store("s3://bucket?endpoint=http://127.0.0.1:9")
        with pytest.raises(PermilleError, match=r"127\.0\.0\.1:9") as error:
            await store.put_stream("a/b", b"")
        assert code_of(error) == (Code.UNAVAILABLE, "STORE_UNAVAILABLE")
        assert error.value.retry_after_s

    async def test_wrong_credentials_are_told(self, s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        store = open_store(s3_url)
        for use in (store.put_stream("a/b", b""), store.exists("a/b"), store.get("a/b")):
            with pytest.raises(PermilleError) as error:
                await use
            assert code_of(error) == (Code.PERMISSION_DENIED, "STORE_DENIED")
            assert "AWS_SECRET_ACCESS_KEY" in error.value.help
            assert "wrong" not in error.value.message

    async def test_no_credentials_are_told(self, s3_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
        with pytest.raises(PermilleError) as error:
            await open_store(s3_url).put_stream("a/b", b"")
        assert code_of(error) == (Code.PERMISSION_DENIED, "STORE_DENIED")

    async def test_a_missing_bucket_is_told(self, s3_url: str) -> None:
        store = open_store(s3_url.replace(urlsplit(s3_url).netloc, "no-such-bucket"))
        for use in (store.put_stream("a/b", b""), store.exists("a/b"), store.get("a/b"), keys(store)):
            with pytest.raises(PermilleError, match="no-such-bucket") as error:
                await use
            assert code_of(error) == (Code.FAILED_PRECONDITION, "STORE_BUCKET_MISSING")

    async def test_a_full_bucket_is_told(self, s3_url: str, swift_server: Any) -> None:
        store = with_small_parts(s3_url)
        await store.put_stream("a/fits", b"x" * 1000)
        swift_server.limit(urlsplit(s3_url).netloc, 100_000)
        for data in (b"x" * 200_000, LARGE):
            with pytest.raises(PermilleError, match="a/large") as error:
                await store.put_stream("a/large", in_pieces(data))
            assert code_of(error) == (Code.RESOURCE_EXHAUSTED, "STORE_FULL")
        assert await keys(store) == ["a/fits"]


@pytest.mark.parametrize(
    "url",
    [
        "",
        "relative",
        "file://host/a",
        "file:relative",
        "file:///a#b",
        "file:///a%0Ab",
        "file:///a%E9b",
        "file:///a%2520b",
        "http://x",
        "s3://",
        "s3://b?x=1",
        "s3://b/a#b",
        "s3://key:secret@bucket/a",
    ],
)
def test_what_is_no_store_is_told(url: str) -> None:
    with pytest.raises(PermilleError) as error:
        open_store(url)
    assert code_of(error) == (Code.INVALID_ARGUMENT, "BAD_STORE_URL")
    assert "secret" not in error.value.message


@pytest.mark.parametrize("name", ["a b", "a#b", "a?b", "a*[b]", "ü"], ids=ascii)
def test_a_state_folder_of_any_name_has_its_store_in_it(tmp_path: Path, name: str) -> None:
    store = open_store(MeshConfig(state_dir=tmp_path / name).store_url)
    assert isinstance(store, FolderStore)
    assert store.url == (tmp_path / name / "store").as_uri()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[S3Request]:
    """What S3 was asked, in order."""
    requests: list[S3Request] = []
    request = S3Connection.request

    def seen(connection: S3Connection, one: S3Request) -> Any:
        requests.append(one)
        return request(connection, one)

    monkeypatch.setattr(S3Connection, "request", seen)
    return requests


@pytest.fixture(autouse=True)
def _no_ambient_credentials(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    yield


async def test_a_folder_that_was_there_and_is_gone_is_no_empty_store(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "mounted")
    assert not await store.exists("raw/s/a")
    await store.put_stream("raw/s/a", b"a")
    assert await store.exists("raw/s/a")
    (tmp_path / "mounted").rename(tmp_path / "elsewhere")
    asked = (store.exists, store.get, store.head, store.delete, lambda key: store.put_stream(key, b"b"))
    for ask in asked:
        with pytest.raises(Unavailable, match="away"):
            await ask("raw/s/a")
    with pytest.raises(Unavailable, match="away"):
        await store.sweep(0)
    with pytest.raises(Unavailable, match="away"):
        assert [info async for info in store.list("raw/")] == []
    assert not (tmp_path / "mounted").exists()
    # Where a disk was mounted the empty folder stays.
    (tmp_path / "mounted").mkdir()
    for ask in asked:
        with pytest.raises(Unavailable, match="away"):
            await ask("raw/s/a")
    assert not list((tmp_path / "mounted").iterdir())
    (tmp_path / "mounted").rmdir()
    (tmp_path / "elsewhere").rename(tmp_path / "mounted")
    assert await store.get("raw/s/a") == b"a"
