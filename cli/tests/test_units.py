"""Quantities as people write and read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from permille.cli.rendering import units
from permille.mesh.errors import InvalidArgument


@pytest.mark.parametrize(
    ("text", "period_ms"),
    [("500ms", 500), ("2s", 2000), ("1.5s", 1500), ("1m", 60_000), ("2000us", 2), (" 3 s ", 3000)],
)
def test_durations_have_a_unit(text: str, period_ms: int) -> None:
    assert units.parse_duration_ms(text) == period_ms


@pytest.mark.parametrize("text", ["", "5", "-5ms", "0ms", "10us", "1h30m", "ms", "1e3ms"])
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidArgument, match="duration") as raised:
        units.parse_duration_ms(text)
    assert "500ms" in raised.value.help


@pytest.mark.parametrize("text", ["60001ms", "61s", "10m", "1h", "2d", "9223372036854775808ms", "9" * 400 + "s"])
def test_a_longer_duration_than_can_be_recorded_is_refused_with_the_longest(text: str) -> None:
    with pytest.raises(InvalidArgument, match="longer duration") as raised:
        units.parse_duration_ms(text)
    assert (raised.value.reason, "60s" in raised.value.help) == ("PERIOD_OUT_OF_RANGE", True)


@pytest.mark.parametrize(
    ("text", "retention_s"),
    [("1s", 1), ("30m", 1800), ("30min", 1800), ("12h", 43_200), ("7d", 604_800), (" 1.5 w ", 907_200)],
)
def test_how_long_something_is_kept_has_a_unit(text: str, retention_s: int) -> None:
    assert units.parse_retention_s(text) == retention_s


@pytest.mark.parametrize(
    "text", ["", "7", "0d", "-7d", "500ms", "0.1s", "for ever", "7days", "1000000d", "9" * 400 + "d"]
)
def test_what_nothing_can_be_kept_for_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"not how long .* kept: a second to 49,710 days") as raised:
        units.parse_retention_s(text)
    assert "7d" in raised.value.help


@given(st.integers(1, (1 << 32) - 1))
def test_how_long_something_is_kept_reads_back_whole(retention_s: int) -> None:
    assert units.parse_retention_s(units.retention(retention_s).replace(",", "")) == retention_s


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("4096", 4096),
        ("64MiB", 64 << 20),
        ("64M", 64 << 20),
        ("1gib", 1 << 30),
        ("1.5k", 1536),
        ("5PiB", 5 << 50),
        ("1EiB", 1 << 60),
    ],
)
def test_sizes_count_in_powers_of_1024(text: str, size_bytes: int) -> None:
    assert units.parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "big", "0", "-1", "8EiB", "1ZB", "9223372036854775808", "8388608T", "9" * 400])
def test_what_is_no_size_is_refused_with_the_range(text: str) -> None:
    with pytest.raises(InvalidArgument, match="no size: a byte to less than 8 EiB"):
        units.parse_size(text)


@given(st.integers(0, 1 << 50))
def test_a_printed_size_reads_back_within_its_precision(size_bytes: int) -> None:
    text = units.size(size_bytes)
    number, unit = text.split()
    read = float(number) * 1024 ** ["B", "KiB", "MiB", "GiB", "TiB"].index(unit)
    assert read == pytest.approx(size_bytes, rel=0.06, abs=0.5)


@given(st.integers(0, 10**13))
def test_a_printed_duration_reads_back_within_its_precision(ns: int) -> None:
    number, unit = units.duration(ns).split()
    read = float(number) * {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}[unit]
    assert read == pytest.approx(ns, rel=0.006, abs=0.5)


@pytest.mark.parametrize(
    ("ns", "text"),
    [(999.4, "999 ns"), (999.6, "1.00 µs"), (999_994, "999.99 µs"), (999_999, "1.00 ms"), (999_999_999, "1.00 s")],
)
def test_what_is_rounded_up_to_the_next_unit_has_that_one(ns: float, text: str) -> None:
    assert units.duration(ns) == text
    assert [units.size(count) for count in (1023, (1 << 20) - 1)] == ["1023 B", "1.0 MiB"]


def test_a_moment_is_utc_to_the_millisecond() -> None:
    assert units.moment(1_700_000_000_123_456_789) == "2023-11-14 22:13:20.123"
    assert units.moment(0) == ""
