"""What a report says of a session, from rows as the decoder's tables have them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import fields, replace
from io import BytesIO, StringIO
from itertools import takewhile

import duckdb
import pyarrow as pa
import pytest
from permille.api.decoder.v1 import decoder_pb2
from permille.cli.rendering.report import (
    FunctionRow,
    InlinedRow,
    LossRow,
    Order,
    Report,
    SegmentRow,
    categories,
    largest_losses,
    notes,
    report_json,
    top,
)
from permille.cli.rendering.report_page import DATA, PROFILE, in_script, report_page
from permille.cli.rendering.report_text import report_text
from permille.cli.rendering.session_table import session_table
from permille.cli.report_data import read_report, request_id_of
from permille.cli.session_list import ListedSession
from permille.mesh.operation_names import require_request_id
from permille.mesh.table_schemas import SCHEMAS
from rich.console import Console

SESSION = ListedSession(
    name="nodes/n1/sessions/20261121-071500-0a1b2c3d",
    state="DECODED",
    target="server",
    backend="vpt",
    purpose="ON_DEMAND",
    start_ns=1_700_000_000_000_000_000,
    end_ns=1_700_000_000_500_000_000,
    period_ms=500,
    stop_reason="PERIOD",
    segments=1,
    raw_bytes=1 << 20,
    stored_bytes=1 << 18,
    lost_bytes=1 << 18,
    unrecorded_bytes=1 << 18,
    instructions=1_000_000,
    calls=110,
)


def function(name: str, self_instructions: int, **other: object) -> FunctionRow:
    row = FunctionRow(
        name=name,
        module="/usr/bin/server",
        build_id="ab12",
        address=0x1000,
        symbol_status="symtab",
        file="",
        line=0,
        calls=10,
        self_instructions=self_instructions,
        total_instructions=self_instructions,
        self_ns=self_instructions // 4,
        total_ns=self_instructions // 2,
        category="other",
    )
    return replace(row, **other)  # type: ignore[arg-type]


SEGMENT = SegmentRow(
    segment=0, pid=7, tid=8, thread="server", core=-1, size_bytes=1 << 20, stored_bytes=1 << 18, lost_bytes=1 << 18,
    buffer_full=True, instructions=1_000_000, branches=9, errors=0, first_ns=1, last_ns=2, decode_ms=3,
)  # fmt: skip
LOSS = LossRow(
    reason="buffer full",
    knob="permille trace --buffer 64MiB, or a shorter period: --for",
    places=1,
    size_bytes=1 << 18,
    length_ns=120_000_000,
)
REPORT = Report(
    SESSION,
    [
        function("work", 700_000, calls=100, category="pricing"),
        function("server+0x2000", 200_000, symbol_status="none: stripped", total_ns=900_000),
        function("main", 100_000, total_instructions=1_000_000, file="/src/main.c", line=12),
    ],
    [SEGMENT],
    [LOSS],
)


def text(report: Report) -> str:
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    for part in report_text(report, [Order.SELF, Order.TOTAL], 2):
        console.print(part)
    return console.export_text()


def test_the_rows_are_columns_of_the_tables() -> None:
    for row, table in ((FunctionRow, "functions"), (SegmentRow, "segments")):
        assert {field.name for field in fields(row)} <= set(SCHEMAS[table].names)
    derived = {"places", "length_ns", "kinds"}
    assert {field.name for field in fields(LossRow)} - derived <= set(SCHEMAS["losses"].names)


def test_functions_are_ranked_by_what_is_asked_for() -> None:
    first = {order: top(REPORT.functions, order, 1)[0].name for order in Order}
    assert first == {
        Order.SELF: "work",
        Order.TOTAL: "main",
        Order.SELF_TIME: "work",
        Order.TOTAL_TIME: "server+0x2000",
        Order.CALLS: "work",
    }
    assert len(top(REPORT.functions, Order.SELF, 0)) == 3


def test_the_text_has_the_facts_the_functions_and_every_loss_with_its_knob() -> None:
    shown = text(REPORT)
    for part in (
        "vpt: a processor with Processor Trace",
        "20.0 %",
        "1,000,000 instructions, 110 calls, 3 functions",
        "8.39 bits an instruction",
        "main  main.c:12",
        "1 more functions: --top 0",
        "buffer full",
        "--buffer 64MiB",
        "256.0 KiB",
    ):
        assert part in shown


def test_all_of_many_functions_are_a_table_in_little_time() -> None:
    functions = [function(f"work<{number}> é", 100_000 - number, file="/src/a.c", line=7) for number in range(50_000)]
    console = Console(width=160, file=StringIO())
    begun_s = time.process_time()
    for part in report_text(replace(REPORT, functions=functions), [Order.SELF], 0):
        console.print(part, crop=False)
    # A millisecond each as a table of rich.
    assert time.process_time() - begun_s < 25
    assert isinstance(console.file, StringIO)
    lines = console.file.getvalue().splitlines()
    rows = [line.split() for line in lines if line.startswith("work<")]
    assert [row[0] for row in rows] == [f"work<{number}>" for number in range(50_000)]
    assert rows[0][1:7] == ["é", "a.c:7", "server", "other", "10", "100,000"]
    (head,) = (line for line in lines if line.startswith("FUNCTION"))
    assert head.index("SELF INSN") + len("SELF INSN") == lines[lines.index(head) + 1].index("100,000") + len("100,000")


@pytest.mark.parametrize("rows", [20, 1001])
@pytest.mark.parametrize("width", [40, 60, 72, 79, 80, 81, 82, 100, 132, 160])
def test_names_and_what_they_are_ranked_by_stand_in_any_terminal(rows: int, width: int) -> None:
    name = "a_namespace::a_function_of_a_long_name<int>"
    functions = [function(f"{name}{nth}", 10**9 - nth, module=f"/lib/{'m' * 40}.so") for nth in range(rows)]
    report = replace(REPORT, functions=functions, losses=[])
    for order, column in ((Order.SELF, "SELF INSN"), (Order.TOTAL_TIME, "TOTAL TIME")):
        console = Console(width=width, file=StringIO())
        for part in report_text(report, [order], 0):
            console.print(part, crop=False)
        assert isinstance(console.file, StringIO)
        lines = console.file.getvalue().splitlines()
        (head,) = (line for line in lines if line.startswith("FUNCTION"))
        begin, end = lines.index(head), lines.index("What the functions are for")
        table = list(takewhile(lambda line: line and not line.startswith("no room"), lines[begin:end]))
        assert column in head and max(map(len, table)) <= width
        assert "".join(line.split("  ")[0] for line in table[1:]) == "".join(row.name for row in functions)


def test_what_the_kernel_module_did_is_a_fact_of_the_session() -> None:
    counters = {"operations_on": 2, "operations_off": 2, "retargets": 1, "arrivals": 250, "hook_calls": 500,
                "hook_ticks": 100_000, "hook_ticks_max": 900, "records": 480, "records_dropped": 20}  # fmt: skip
    kmod = replace(REPORT, session=replace(SESSION, backend="kmod", counters=counters))
    shown = " ".join(text(kmod).split())
    assert "4 control operations for 250 arrivals of the target, 1 moves of the filter, each two more" in shown
    assert "500 hook calls, 200 TSC ticks each; 20 switch records dropped" in shown
    assert report_json(kmod, Order.SELF, 1)["session"]["counters"] == counters
    assert "control operations" not in text(REPORT)


def test_categories_are_summed_over_their_functions() -> None:
    rows = [(row.category, row.functions, row.calls, row.self_instructions) for row in categories(REPORT)]
    assert rows == [("pricing", 1, 100, 700_000), ("other", 2, 20, 300_000)]
    assert [row["category"] for row in report_json(REPORT, Order.SELF, 1)["categories"]] == ["pricing", "other"]
    assert "What the functions are for" in text(REPORT)
    before = replace(REPORT, functions=[replace(row, category="") for row in REPORT.functions])
    assert categories(before) == [] and "What the functions are for" not in text(before)


def test_inlined_functions_stand_below_the_function_that_they_are_in() -> None:
    rows = [InlinedRow(5, "helper", 600_000), InlinedRow(5, "helper > step", 50_000), InlinedRow(6, "other", 1)]
    functions = [replace(row, function=5 if row.name == "work" else 7) for row in REPORT.functions]
    with_inlined = replace(REPORT, functions=functions, inlined=rows)
    lines = text(with_inlined).splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("work"))
    assert lines[at + 1].split() == ["inlined:", "helper", "600,000", "60.0"]
    assert "helper > step" in lines[at + 2] and "inlined" not in lines[at + 3]
    assert report_json(with_inlined, Order.SELF, 0)["inlined"][0] == {
        "function": 5,
        "chain": "helper",
        "instructions": 600_000,
    }
    assert "inlined" not in report_json(REPORT, Order.SELF, 0)
    assert any("inlined = true" in note.way_out for note in notes(replace(REPORT, inlined=[])))


class LostTables:
    """A decoder whose tables hold nothing but these losses."""

    def __init__(self, losses: str) -> None:
        self._connection = duckdb.connect(":memory:")
        for name in SCHEMAS.keys() - {"losses"}:
            self._connection.register(name, SCHEMAS[name].empty_table())
        self._connection.execute(f"CREATE TABLE losses AS {losses}")

    async def decoder(self) -> LostTables:
        return self

    async def Query(self, request: decoder_pb2.QueryRequest) -> AsyncIterator[decoder_pb2.QueryResponse]:  # noqa: N802
        table = self._connection.sql(request.sql).to_arrow_table()
        sink = BytesIO()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        yield decoder_pb2.QueryResponse(arrow_ipc=sink.getvalue())


async def losses_of(reason: str, number: int) -> list[LossRow]:
    """`reason`: in SQL, of the number `n`."""
    rows = (
        f"SELECT '{SESSION.session_id}' AS session_id, 0 AS segment, {reason} AS reason, 'knob' AS knob,"
        f" 2 AS size_bytes, 5 AS start_ns, 8 AS end_ns FROM range({number}) t(n)"
    )
    return (await read_report(LostTables(rows), SESSION)).losses  # type: ignore[arg-type]


async def test_losses_are_of_one_kind_wherever_they_are() -> None:
    unmapped = "printf('no-code: nothing is known at 0x%x: nothing was mapped there', 4096 + n)"
    assert await losses_of(unmapped, 60_000) == [
        LossRow(
            "no-code: nothing is known at several addresses: nothing was mapped there", "knob", 60_000, 120_000, 180_000
        )
    ]
    (alone,) = await losses_of(unmapped, 1)
    assert alone.reason == "no-code: nothing is known at 0x1000: nothing was mapped there"
    (unknown,) = await losses_of("printf('unknown-packet: no packet begins with 02 %02x 00 ff', n)", 200)
    assert (unknown.reason, unknown.places) == ("unknown-packet: no packet begins with what is there", 200)


async def test_of_many_kinds_the_largest_losses_are_shown_and_the_others_summed() -> None:
    losses = await losses_of("'no-code: nothing is known at 0x1000: /lib/' || (n * n) % 5000 || ': no file'", 30_000)
    report = replace(REPORT, losses=losses)
    listed = report_json(report, Order.SELF, 1)["losses"]
    assert len(listed) == 101 and sum(row["size_bytes"] for row in listed) == 60_000
    assert listed[-1]["kinds"] > 500 and listed[-1]["reason"] == f"and {listed[-1]['kinds']:,} more reasons"
    shown = text(report).partition("Losses: what")[2]
    assert shown.count("no file") == 15
    assert f"and {listed[-1]['kinds'] + 85:,} more reasons" in shown and "permille query" in shown
    assert report_page(f"{DATA}{PROFILE}", report, b"").count("no file") == 100


def test_one_more_loss_is_shown_as_it_is() -> None:
    rows = [replace(LOSS, reason=f"reason {number}") for number in range(16)]
    assert largest_losses(rows, 15) == rows
    assert [row.reason for row in largest_losses(rows, 14)[14:]] == ["and 2 more reasons"]


def test_frames_without_symbols_come_with_the_reason_and_the_way_out() -> None:
    first = notes(REPORT)[0]
    assert "1 functions without a name (20.0 % of the instructions): stripped" in first.text
    assert "upload-binary" in first.way_out


def test_code_without_a_file_cannot_be_uploaded() -> None:
    generated = function("0x7f0000001000", 5, symbol_status="none: generated code", module="", build_id="")
    note = notes(replace(REPORT, functions=[generated], segments=[]))[0]
    assert note.text.startswith("code without a file: 1 functions")
    assert note.way_out == ""


def test_full_buffers_early_ends_and_empty_recordings_are_told() -> None:
    told = " ".join(note.text for note in notes(REPORT))
    assert "buffers of 1 of 1 threads ran full" in told
    ended = replace(REPORT, session=replace(SESSION, stop_reason="TARGET_EXITED"))
    assert any("the program ended" in note.text for note in notes(ended))
    session = replace(SESSION, instructions=0, lost_bytes=0)
    nothing = replace(REPORT, functions=[], segments=[], losses=[], session=session)
    assert any("the target slept" in note.text for note in notes(nothing))
    assert "Losses: none" in text(nothing)
    assert "none of its threads left packets" in text(nothing) and "threads: 0" not in text(nothing)


def test_a_target_of_which_something_is_lost_did_not_sleep() -> None:
    told = notes(replace(REPORT, functions=[], segments=[], session=replace(SESSION, instructions=0)))
    assert [note.text for note in told] == ["nothing could be decoded: the losses say why"]


def test_of_what_was_imported_nobody_knows_whether_it_slept() -> None:
    session = replace(SESSION, instructions=0, lost_bytes=0, backend="imported:lldb")
    (told,) = notes(replace(REPORT, functions=[], segments=[], losses=[], session=session))
    assert "imported" in told.text and "slept" not in told.text
    assert told.way_out == ""


def test_of_an_imported_recording_of_permilles_own_it_is_told_what_recorded_it_and_why_it_ended() -> None:
    own = replace(SESSION, backend="imported:vpt", stop_reason="TARGET_EXITED", period_ms=500)
    shown = text(replace(REPORT, session=own))
    assert "QEMU; times contain the emulation, instructions do not; imported" in shown
    assert "(asked for 500.00 ms; the program ended)" in shown
    others = text(replace(REPORT, session=replace(SESSION, backend="imported:perf.data", stop_reason="IMPORTED")))
    assert "perf.data, imported: Processor Trace that another tool recorded" in others
    assert "asked for" not in others


def test_what_is_said_of_the_whole_session_is_a_note_and_no_loss() -> None:
    report = replace(REPORT, losses=[], remarks=["the packets hold no times"])
    assert "note: the packets hold no times" in text(report)
    assert "Losses: what was executed" not in text(report)


def test_names_are_shown_as_they_are() -> None:
    odd = function("operator[](std::vector<int> [bold]&)", 1)
    assert odd.name in text(replace(REPORT, functions=[odd]))


def test_the_share_that_is_lost_is_that_of_what_was_executed() -> None:
    assert "256.0 KiB (20.0 %)" in text(REPORT)
    # What cannot be decoded is among the recorded bytes.
    undecodable = replace(SESSION, lost_bytes=SESSION.raw_bytes, unrecorded_bytes=0)
    both = replace(SESSION, lost_bytes=3 << 18, unrecorded_bytes=1 << 18)
    for session, told in ((undecodable, "1.0 MiB (100.0 %)"), (both, "768.0 KiB (60.0 %)")):
        assert told in text(replace(REPORT, session=session))
        console = Console(width=200, record=True, file=StringIO())
        console.print(session_table([session]))
        assert told in console.export_text()


def test_the_json_has_everything() -> None:
    found = report_json(REPORT, Order.SELF, 1)
    assert [row["name"] for row in found["functions"]] == ["work"]
    assert found["functions_total"] == 3
    assert found["losses"][0]["knob"] == LOSS.knob
    assert found["session"]["backend"] == "vpt"


def test_no_name_can_end_the_script_that_holds_the_data() -> None:
    evil = function("</script><script>alert(1)</script><!--", 1)
    page = report_page(f"<s>{DATA}</s><s>{PROFILE}</s>", replace(REPORT, functions=[evil]), b"{}")
    assert "</script>" not in page
    assert "<!--" not in page
    assert "\\u003c/script>" in in_script(evil.name)


def test_names_of_a_recording_keep_to_their_line() -> None:
    evil = "a\n\x1b[31mb"
    rows = [
        function(evil, 10, file=f"/src/{evil}", line=3),
        function("x", 5, symbol_status=f"none: {evil}", module=evil),
    ]
    losses = [LossRow(evil, evil, 1, 2, 3)]
    report = Report(replace(SESSION, target=evil), rows, [], losses, remarks=[evil], inlined=[InlinedRow(-1, evil, 1)])
    told = text(report)
    assert "\x1b" not in told
    # The target, a function, its file, a module, what was lost and why, a remark.
    assert told.count(r"a\x0a\x1b[31mb") >= 7


def test_a_session_of_which_no_time_is_known_has_no_length() -> None:
    def length(session: ListedSession) -> str:
        table = session_table([session])
        ((*cells,),) = table.rows
        return str(cells[[column.head for column in table.columns].index("LENGTH")])

    name, at = "nodes/imported/sessions/s", 1_800_000_000_000_000_000
    assert length(ListedSession(name, "DECODED", start_ns=at, end_ns=at)) == ""
    assert length(ListedSession(name, "DECODED", period_ms=500)) == "500.00 ms"


def test_a_wrong_name_takes_the_request_id_of_no_other_session() -> None:
    names = [f"nodes/{node}/sessions/{'s' * 128}" for node in ("n1", "n2", "n" * 63)]
    assert len({require_request_id(request_id_of(name)) for name in names}) == 3
