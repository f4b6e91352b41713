"""Requests to S3: signed as Amazon's own library does, tried again, over TLS, through proxies, with found keys."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import re
import socket
import ssl
import string
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import botocore.auth
import pytest
import urllib3
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotocoreCredentials
from permille.mesh.certs import create_authority, issue_service
from permille.mesh.errors import Code, PermilleError
from permille.mesh.store import open_store, s3_connection, s3_sockets
from permille.mesh.store.s3 import S3Store
from permille.mesh.store.s3_credentials import S3Credentials
from permille.mesh.store.s3_signature import Credentials, Request, signed
from permille.mesh.tables import Tables

# Status, headers, body.
Answer = tuple[int, dict[str, str], bytes]
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
STRANGE = "raw/a b+c=d&e~f_g-h.i/ü€/%41/" + "".join(c for c in string.punctuation if c not in "/\\")
AWAY: Answer = (503, {}, b"<Error><Code>SlowDown</Code><Message>later</Message></Error>")
STORED: Answer = (200, {"Last-Modified": "Fri, 02 Jan 2026 03:04:05 GMT", "x-amz-meta-permille-sha256": "ab"}, b"")


class Answering:
    """An HTTP server on loopback that answers what it was told, the last again and again, and keeps what was asked."""

    def __init__(self, *answers: Answer) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        left = list(answers)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def answer(handler) -> None:  # noqa: N805
                handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
                self.asked.append((f"{handler.command} {handler.path}", dict(handler.headers)))
                status, headers, body = left.pop(0) if len(left) > 1 else left[0]
                content = body if handler.command != "HEAD" else b""
                handler.send_response(status)
                for name, value in ({"Content-Length": str(len(content))} | headers).items():
                    handler.send_header(name, value)
                handler.end_headers()
                handler.wfile.write(content)

        for method in ("GET", "PUT", "HEAD", "POST", "DELETE", "CONNECT"):
            setattr(Handler, f"do_{method}", Handler.answer)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Answering:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(autouse=True)
def _credentials(s3_credentials: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("permille.mesh.store.s3_connection.time.sleep", lambda _: None)
    yield


@pytest.mark.parametrize("token", ["", "a/token+of=hours"])
@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("query", [{}, {"uploads": ""}, {"prefix": STRANGE, "list-type": "2", "Z": "1", "a": "~"}])
def test_signatures_are_those_of_amazons_own_library(
    token: str, scheme: str, query: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: NOW)
    request = Request(
        "PUT", "/bucket/" + quote(STRANGE), query, {"host": "h:90", "x-amz-meta-a": "b  c ", "content-md5": "x"}
    )
    theirs = AWSRequest("PUT", f"{scheme}://h:90{request.path}?{request.query_string}", dict(request.headers), b"body")
    botocore.auth.S3SigV4Auth(BotocoreCredentials("id", "key", token or None), "s3", "eu-west-1").add_auth(theirs)
    ours = signed(request, theirs.headers["X-Amz-Content-SHA256"], Credentials("id", "key", token), "eu-west-1", NOW)
    assert ours["authorization"] == theirs.headers["Authorization"]
    assert {name: ours[name] for name in ours} == {name.lower(): value for name, value in theirs.headers.items()}


async def test_keys_with_any_printable_character_are_stored_and_found(s3_url: str) -> None:
    store = open_store(s3_url)
    await store.put_stream(STRANGE, b"strange")
    assert await store.get(STRANGE) == b"strange"
    assert [info.key async for info in store.list()] == [STRANGE]
    await store.delete_prefix("raw/")
    assert [info.key async for info in store.list()] == []


async def test_more_objects_than_a_page_has_are_listed(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(s3_url)
    keys = [f"raw/{number}" for number in range(7)]
    for key in keys:
        await store.put_stream(key, b"")
    once = s3_connection.S3Connection._once

    def in_small_pages(connection: Any, call: s3_connection.S3Request) -> Any:
        if call.operation == "ListObjectsV2":
            call = s3_connection.S3Request(call.operation, call.method, query={**call.query, "max-keys": "3"})
        return once(connection, call)

    monkeypatch.setattr(s3_connection.S3Connection, "_once", in_small_pages)
    assert [info.key async for info in store.list("raw/")] == keys


@pytest.mark.parametrize(
    ("status", "code", "reason"),
    [
        (403, "AccessDenied", "STORE_DENIED"),
        (400, "ExpiredToken", "STORE_DENIED"),
        (400, "InvalidToken", "STORE_DENIED"),
        (401, "", "STORE_DENIED"),
        (404, "NoSuchBucket", "STORE_BUCKET_MISSING"),
    ],
)
async def test_tables_tell_what_objects_tell(status: int, code: str, reason: str) -> None:
    body = f"<?xml version='1.0'?>\n<Error>\n<Code>{code}</Code><Message>why</Message></Error>".encode()
    with Answering((status, {}, body)) as server:
        store = open_store(f"s3://bucket?endpoint={server.endpoint}")
        for use in (store.get("a"), Tables(store).dataset("calls"), Tables(store).files("calls")):
            with pytest.raises(PermilleError) as error:
                await use
            assert error.value.reason == reason


async def test_what_may_pass_is_tried_three_times() -> None:
    with Answering(AWAY, AWAY, STORED) as server:
        assert (await open_store(f"s3://bucket?endpoint={server.endpoint}").head("a")).sha256 == "ab"
        assert len(server.asked) == 3
    with Answering(AWAY) as server:
        with pytest.raises(PermilleError, match="SlowDown: later") as error:
            await open_store(f"s3://bucket?endpoint={server.endpoint}").get("a")
        assert (error.value.code, error.value.reason) == (Code.UNAVAILABLE, "STORE_UNAVAILABLE")
        assert len(server.asked) == 3


class Slow:
    """A server that takes what is put some at a time, and longer for all of it than for anything else."""

    def __init__(self) -> None:
        self._listener = socket.socket()
        # Else the system takes all of it at once.
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen()
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def serve(self, size: int) -> None:
        """One put of so many bytes."""
        with self._listener, self._listener.accept()[0] as taken, taken.makefile("rb") as lines:
            while lines.readline().strip():
                pass
            for _ in range(10):
                threading.Event().wait(0.3)
                lines.read(size // 10)
            taken.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


async def test_a_put_has_time_as_long_as_the_server_takes_some_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_sockets, "TIMEOUT", urllib3.Timeout(connect=0.1, read=2))
    server, content = Slow(), bytes(40_000_000)
    taking = asyncio.create_task(asyncio.to_thread(server.serve, len(content)))
    connection = s3_connection.S3Connection("bucket", server.endpoint, "eu-west-1", S3Credentials())
    await asyncio.to_thread(connection.request, s3_connection.S3Request("PutObject", "PUT", "a", body=content))
    await taking


async def error_of(*answers: Answer) -> PermilleError:
    with Answering(*answers) as server, pytest.raises(PermilleError) as error:
        await open_store(f"s3://bucket?endpoint={server.endpoint}").get("a")
    return error.value


async def test_of_an_error_no_more_is_read_than_can_be_told() -> None:
    entities = b'<!DOCTYPE e [<!ENTITY x "' + b"x" * 10_000 + b'">]>'
    for body in (
        entities + b"<Error><Code>AccessDenied</Code><Message>" + b"&x;" * 500 + b"</Message></Error>",
        b"<Error><Code>AccessDenied</Code><Message>" + b"x" * 10_000 + b"</Message></Error>",
        b"x" * 10_000_000,
    ):
        error = await error_of((403, {}, body))
        assert error.reason == "STORE_DENIED"
        assert len(error.message) < 1200


async def test_another_time_than_the_stores_is_told() -> None:
    body = b"<Error><Code>RequestTimeTooSkewed</Code><Message>too far apart</Message></Error>"
    error = await error_of((403, {}, body))
    assert error.reason == "STORE_CLOCK"
    assert "set the clocks" in error.help


def broken_off(content: bytes, of: int, status: int = 200) -> Answer:
    headers = {"ETag": '"one"', "x-amz-meta-permille-sha256": hashlib.sha256(b"abcde").hexdigest()}
    return status, {**STORED[1], **headers, "Content-Length": str(of), "Connection": "close"}, content


async def test_the_rest_of_an_object_that_breaks_off_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("permille.mesh.store.s3._READ_BYTES", 2)
    with Answering(broken_off(b"abc", 5), broken_off(b"d", 2, 206), broken_off(b"e", 1, 206)) as server:
        assert await open_store(f"s3://bucket?endpoint={server.endpoint}").get("a") == b"abcde"
    headers = [headers for _, headers in server.asked]
    assert [(each.get("range"), each.get("if-match")) for each in headers] == [
        (None, None),
        ("bytes=3-", '"one"'),
        ("bytes=4-", '"one"'),
    ]


async def test_who_is_cancelled_while_a_read_waits_waits_for_nothing(s3_credentials: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as threads:
        over = threading.Event()

        def answer() -> bool:
            with listener.accept()[0] as asked, asked.makefile("rb") as lines:
                while lines.readline().strip():
                    pass
                asked.sendall(b'HTTP/1.1 200 OK\r\nETag: "one"\r\nContent-Length: 4000000\r\n')
                asked.sendall(b"Last-Modified: Fri, 02 Jan 2026 03:04:05 GMT\r\n\r\n" + bytes(2_000_000))
                return over.wait(30)

        ended_in_time = threads.submit(answer)
        body = open_store(f"s3://bucket?endpoint=http://127.0.0.1:{listener.getsockname()[1]}").open_read("a")
        assert await anext(body)
        reading = asyncio.ensure_future(anext(body))
        await asyncio.sleep(0.5)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        over.set()
        assert ended_in_time.result()


@pytest.mark.parametrize(
    ("further", "reason"),
    [
        (broken_off(b"", 2, 206), "STORE_UNAVAILABLE"),
        (broken_off(b"abcde", 5), "STORE_UNAVAILABLE"),
        ((412, {}, b""), "OBJECT_REPLACED"),
    ],
)
async def test_an_object_that_goes_on_breaking_off_begins_anew_or_changes_is_an_error(
    further: Answer, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("permille.mesh.store.s3._READ_BYTES", 2)
    error = await error_of(broken_off(b"abc", 5), further)
    assert (error.code, error.reason) == (Code.UNAVAILABLE, reason)


async def test_a_server_is_left_alone_for_as_long_as_it_asks_to(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr("permille.mesh.store.s3_connection.time.sleep", waited.append)
    busy = [(503, {"Retry-After": seconds}, AWAY[2]) for seconds in ("7", "86400")]
    with Answering(*busy, STORED) as server:
        await open_store(f"s3://bucket?endpoint={server.endpoint}").head("a")
    assert 7 <= waited[0] <= 8
    assert 30 <= waited[1] <= 32


@pytest.mark.parametrize("page", [b"<html>Welcome to some proxy<br></html>", b"<html><body>Log in</body></html>"])
async def test_what_is_no_s3_is_told(page: bytes) -> None:
    with (
        Answering((200, {}, page)) as server,
        pytest.raises(PermilleError) as error,
    ):
        _ = [info async for info in open_store(f"s3://bucket?endpoint={server.endpoint}").list()]
    assert (error.value.code, error.value.reason) == (Code.UNAVAILABLE, "STORE_UNAVAILABLE")


async def test_a_bucket_of_another_region_is_asked_as_one_of_that(s3_url: str) -> None:
    store = open_store(f"{s3_url}&region=eu-west-1")
    await store.put_stream("a", b"content")
    assert await store.get("a") == b"content"
    moved: Answer = (301, {"x-amz-bucket-region": "eu-west-3"}, b"")
    with Answering(moved, STORED) as server:
        await open_store(f"s3://bucket?endpoint={server.endpoint}").head("a")
        assert ["/eu-west-3/s3/" in headers["authorization"] for _, headers in server.asked] == [False, True]


async def test_an_upload_that_fails_after_its_status_is_completed_again() -> None:
    begun: Answer = (200, {}, b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>")
    none: Answer = (200, {}, b"<ListMultipartUploadsResult/>")
    done: Answer = (200, {}, b"<CompleteMultipartUploadResult/>")
    nothing: Answer = (200, {}, b"<ListBucketResult/>")
    sent: Answer = (200, {"ETag": '"x"'}, b"")
    late: Answer = (200, {}, b"   <Error><Code>InternalError</Code></Error>")
    with Answering(none, begun, sent, sent, sent, late, done, STORED, sent, nothing) as server:
        store = S3Store("bucket", endpoint=server.endpoint, part_bytes=10)
        await store.put_stream("a", b"x" * 20)
        assert [what for what, _ in server.asked].count("POST /bucket/a?uploadId=u") == 2


@pytest.mark.parametrize(
    ("bucket", "host"),
    [
        ("some", "some.s3.eu-west-1.amazonaws.com"),
        ("with.dot", "s3.eu-west-1.amazonaws.com"),
    ],
)
async def test_amazon_is_asked_through_the_proxy_by_the_name_of_the_bucket(
    bucket: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Answering((403, {}, b"")) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.endpoint)
        monkeypatch.setenv("https_proxy", proxy.endpoint)
        monkeypatch.setenv("NO_PROXY", "localhost")
        monkeypatch.setenv("no_proxy", "localhost")
        with pytest.raises(PermilleError) as error:
            await open_store(f"s3://{bucket}?region=eu-west-1").get("a")
        assert error.value.code == Code.UNAVAILABLE
        assert {what for what, _ in proxy.asked} == {f"CONNECT {host}:443"}


@pytest.mark.parametrize("variable", ["AWS_CA_BUNDLE", "SSL_CERT_FILE"])
async def test_a_server_with_a_private_authority_is_trusted_by_its_certificate(
    s3_url: str, variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = random.Random(2).randbytes(9 << 20)
    async with over_tls(s3_url, tmp_path) as (url, authority):
        monkeypatch.setattr("permille.mesh.store.s3_connection.time.sleep", lambda _: pytest.fail("tried in vain"))
        with pytest.raises(PermilleError, match="certificate verify failed") as error:
            await open_store(url).get("a")
        assert error.value.code == Code.UNAVAILABLE
        monkeypatch.setenv(variable, str(authority))
        store = open_store(url)
        await store.put_stream("a", data)
        assert await store.get("a") == data
        monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "none"))
        with pytest.raises(PermilleError, match=r"AWS_CA_BUNDLE .* cannot be read"):
            await open_store(url).get("a")


async def test_tables_trust_what_ssl_cert_file_names(
    s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with over_tls(s3_url, tmp_path) as (url, authority):
        with pytest.raises(PermilleError) as error:
            await Tables(open_store(url)).dataset("calls")
        assert error.value.code == Code.UNAVAILABLE
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
        assert (await Tables(open_store(url)).dataset("calls")).count_rows() == 0


async def test_a_profile_is_read_where_the_environment_has_no_key(
    s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiles, access_key = tmp_path / "credentials", os.environ["AWS_ACCESS_KEY_ID"]
    profiles.write_text(
        f"[traces]\naws_access_key_id = {access_key}\naws_secret_access_key = {os.environ['AWS_SECRET_ACCESS_KEY']}\n"
        "[partial]\naws_access_key_id = alone\n"
    )
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profiles))
    monkeypatch.setenv("AWS_PROFILE", "traces")
    store = open_store(s3_url)
    await store.put_stream("a", b"content")
    assert await store.get("a") == b"content"
    assert store.table_location("calls")[1]["aws_access_key_id"] == access_key
    for profile, what in (("none", "(none)"), ("partial", "missing: aws_secret_access_key")):
        monkeypatch.setenv("AWS_PROFILE", profile)
        with pytest.raises(PermilleError, match=re.escape(what)) as error:
            await open_store(s3_url).get("a")
        assert (error.value.code, error.value.reason) == (Code.PERMISSION_DENIED, "STORE_DENIED")


@asynccontextmanager
async def over_tls(url: str, folder: Path) -> AsyncIterator[tuple[str, Path]]:
    """The same store behind TLS, with a certificate of an authority that nobody knows: its URL, and the authority's."""
    target = urlsplit(url).query.removeprefix("endpoint=http://")
    authority = create_authority(folder).certificate
    issued = issue_service(folder, ["allocator"], node="n1", hosts=["127.0.0.1"])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(issued.certificate, issued.key)

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        their_reader, their_writer = await asyncio.open_connection(*target.split(":"))
        await asyncio.gather(copy(reader, their_writer), copy(their_reader, writer))

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(1 << 16):
                writer.write(piece)
                await writer.drain()
        except (ConnectionError, ssl.SSLError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(relay, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    try:
        yield url.replace(f"http://{target}", f"https://127.0.0.1:{port}"), authority
    finally:
        server.close()


def test_what_is_secret_of_a_key_is_in_no_log() -> None:
    assert repr(Credentials("id", "secret", "token")) == "Credentials(access_key='id')"
