"""Errors as they travel between processes."""

from __future__ import annotations

import os
import pickle
import resource
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake.exceptions import DeltaError
from permille.api.operation.v1 import operation_pb2
from permille.mesh.errors import Code, NotFound, PermilleError, ResourceExhausted, Unavailable
from permille.mesh.exhausted import exhausted
from permille.mesh.unexpected import unexpected


@pytest.mark.parametrize(
    "error",
    [
        Unavailable("the store is away", reason="STORE", help="wait", metadata={"key": "k"}, retry_after_s=5),
        NotFound("no such thing", reason="NONE"),
        PermilleError("odd", code=Code.UNKNOWN, reason="ODD"),
    ],
)
def test_an_error_of_another_process_is_the_same_error(error: PermilleError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert vars(again) == vars(error)
    assert str(again) == str(error)


def test_an_error_about_a_file_whose_name_is_no_unicode_can_be_sent() -> None:
    name = b"/lib/\xff.so".decode(errors="surrogateescape")
    error = NotFound(f"no {name}", reason="NONE", help=f"ls {name}", metadata={"path": name})
    operation_pb2.Error(message=error.message, help=error.help, metadata=error.metadata)
    assert error.message == "no /lib/\\udcff.so"


def one_more_thread() -> None:
    before = threading.stack_size(1 << 46)
    try:
        threading.Thread(target=print).start()
    finally:
        threading.stack_size(before)


def one_more_file() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        os.open(Path(__file__), os.O_RDONLY)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def more_memory() -> None:
    bytearray(1 << 62)


@pytest.mark.parametrize(
    ("take", "what"), [(one_more_thread, "threads"), (one_more_file, "open files"), (more_memory, "memory")]
)
def test_what_a_machine_lacks_is_no_defect(take: Callable[[], None], what: str) -> None:
    with pytest.raises((RuntimeError, OSError, MemoryError)) as raised:
        take()
    told = unexpected("decoder", raised.value, method="/x")
    assert isinstance(told, ResourceExhausted)
    assert (told.reason, told.metadata["lacks"], told.retry_after_s) == ("MACHINE_EXHAUSTED", what, 1.0)
    assert f"can have no more {what}" in told.message and "raise" in told.help


@pytest.mark.parametrize(
    ("told", "what"),
    [
        ("Generic LocalFileSystem error: Unable to open file /a.json: Too many open files (os error 24)", "open files"),
        ("[Errno 12] Failed to open local file '/a.parquet'. Detail: [errno 12] Cannot allocate memory", "memory"),
        ("Resource temporarily unavailable (os error 11)", "threads"),
    ],
)
def test_what_a_library_lacked_is_read_from_its_words(told: str, what: str) -> None:
    lack = exhausted("decoder", DeltaError(told))
    assert lack is not None and lack.metadata["lacks"] == what
    assert exhausted("decoder", DeltaError(told.replace("24", "2").replace("12", "2").replace("11", "2"))) is None


@pytest.mark.parametrize("error", [RuntimeError("a secret"), FileNotFoundError(2, "a secret"), ValueError("a secret")])
def test_of_a_defect_nothing_but_an_id_is_told(error: Exception) -> None:
    told = unexpected("decoder", error)
    assert told.reason == "UNEXPECTED" and told.metadata["error_id"] in told.message
    assert "secret" not in told.message + told.help
