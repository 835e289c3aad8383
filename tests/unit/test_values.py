"""Texts become numbers, however odd they are, and no number outgrows an array."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.values import MOST_AMOUNT, ValueProblem, parse_quantity, parse_resource, percent, pod_needs


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1Ei", 2**60), ("0.5Ei", 2**59), ("1E", 10**18), ("1E3", 1000), ("1e3", 1000), ("1e300", Decimal("1e300")),
        ("840G", 840 * 10**9), ("500m", Decimal("0.5")), ("-1", -1), (".5", Decimal("0.5")), (8, 8),
    ],
)  # fmt: skip
def test_quantities_as_the_api_server_reads_them(text: str | int, value: int | Decimal) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize("text", ["", "abc", "1e", "1Eii", "1 G", "Ei", "NaN", "1e9999"])
def test_other_texts_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueProblem, match="write for example"):
        parse_quantity(text)


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.9, "90%"), (0.995, "99.5%"), (0.99999, "99.999%"), (0.999999, "99.999%"), (1.0, "100%"), (0.29, "29%")],
)
def test_a_percentage_is_never_rounded_up(share: float, text: str) -> None:
    assert percent(share) == text


amounts = st.dictionaries(st.sampled_from(["cpu", "memory", "example.com/x"]), st.integers(0, 10**300))


@given(st.lists(amounts, max_size=3), st.lists(st.tuples(st.booleans(), amounts), max_size=3), amounts, amounts)
def test_what_a_pod_needs_fits_an_array(containers, initial, whole, overhead) -> None:  # type: ignore[no-untyped-def]
    needs = pod_needs(containers, initial, whole, {}, overhead)
    assert all(0 <= amount <= MOST_AMOUNT for amount in needs.values())
    assert needs["pods"] == 1


def test_an_absurd_amount_is_read_exactly() -> None:
    assert parse_resource("cpu", "9223372036854775807") == 9223372036854775807000
