"""Which session a person means."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest
from permille.cli.session_list import DECODED, ListedSession, SessionList, chosen, chosen_or_stored
from permille.mesh.errors import InvalidArgument, NotFound, Unavailable
from permille.mesh.table_schemas import SCHEMAS

LISTED = SessionList(
    [
        ListedSession("nodes/n2/sessions/20261121-230300-bb", "DECODED"),
        ListedSession("nodes/n1/sessions/20261121-230200-aa", "DECODED"),
    ]
)


@pytest.mark.parametrize(
    "wanted",
    [
        "nodes/n1/sessions/20261121-230200-aa",
        "20261121-230200-aa",
        "nodes/n1/sessions/20261121",
        "20261121-2302",
    ],
)
def test_a_session_is_meant_by_its_name_its_id_or_the_beginning(wanted: str) -> None:
    assert chosen(LISTED, wanted).name == "nodes/n1/sessions/20261121-230200-aa"


@pytest.mark.parametrize("wanted", ["nodes/n3/sessions/20261121-230200-aa", "nodes/n2/sessions/20261121-2302"])
def test_a_name_of_another_node_means_no_session_of_that_id(wanted: str) -> None:
    with pytest.raises(NotFound, match=f"there is no session {wanted}") as refused:
        chosen(LISTED, wanted)
    assert refused.value.help.startswith("did you mean nodes/")


def test_a_whole_name_that_is_not_listed_may_be_decoded_all_the_same() -> None:
    unlisted = "nodes/n3/sessions/20261121-230200-aa"
    assert chosen_or_stored(LISTED, unlisted) == ListedSession(unlisted, "STORED")
    assert chosen_or_stored(SessionList([], [Unavailable("no controller", reason="R")]), unlisted).name == unlisted
    assert chosen_or_stored(LISTED, "nodes/n1/sessions/20261121").state == "DECODED"
    for wanted in ("20261121-230400", "nodes/n3", "latest/sessions/x"):
        with pytest.raises(NotFound):
            chosen_or_stored(LISTED, wanted)


@pytest.mark.parametrize("wanted", ["", "nodes/n1/sessions/"])
def test_nothing_names_no_session(wanted: str) -> None:
    with pytest.raises(InvalidArgument, match="names no session") as refused:
        chosen(LISTED, wanted)
    assert (refused.value.reason, "comma" in refused.value.help) == ("SESSION_MISSING", True)


def test_a_beginning_that_several_have_asks_for_more_of_it() -> None:
    with pytest.raises(InvalidArgument, match="the beginning of 2 sessions"):
        chosen(LISTED, "20261121")


@pytest.mark.parametrize(
    ("backend", "unrecorded", "told"),
    [("vpt", 3, 3), ("vpt", None, 5), ("imported:perf.data", 0, 0), ("imported:lldb", None, 0)],
)
def test_what_an_earlier_release_did_not_tell_apart_is_taken_for_what_it_mostly_was(
    backend: str, unrecorded: int | None, told: int
) -> None:
    row = {"backend": backend, "lost_bytes": 5, "unrecorded_bytes": unrecorded}
    sessions = pa.Table.from_pylist([row], schema=SCHEMAS["sessions"])
    with duckdb.connect() as database:
        database.register("sessions", sessions)
        (found,) = database.sql(DECODED).to_arrow_table().to_pylist()
    assert found["unrecorded_bytes"] == told
