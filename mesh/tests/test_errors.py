"""Errors as they travel between processes."""

from __future__ import annotations

import pickle

import pytest
from permille.api.operation.v1 import operation_pb2
from permille.mesh.errors import Code, NotFound, PermilleError, Unavailable


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
