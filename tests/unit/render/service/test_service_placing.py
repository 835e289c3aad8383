"""What the pool has added to the user's own node affinity can be told from it again."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from berth.render.service.placing import added_terms, affinity
from berth.values import Requirement
from tests.builders.services import make_plan

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TEXT = st.sampled_from(["a", "b", "c"])
ENTRIES = st.lists(
    st.one_of(
        st.builds(lambda key, values: Requirement(key, "In", tuple(values)), TEXT, st.lists(TEXT, min_size=1)),
        st.builds(lambda key: Requirement(key, "Exists"), TEXT),
    ),
    max_size=3,
).map(tuple)


def expression(entry: Requirement) -> dict[str, Any]:
    return {"key": entry.key, "operator": entry.operator} | ({"values": list(entry.values)} if entry.values else {})


@given(ENTRIES, st.lists(ENTRIES.filter(bool), max_size=3))
def test_what_is_read_off_an_affinity_renders_it_again(nodes: Any, own: list[Any]) -> None:
    terms = [{"matchExpressions": [expression(entry) for entry in term]} for term in own]
    before: dict[str, Any] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}} if terms else {}
    made = affinity(make_plan(nodes=(nodes,)), before)
    read = added_terms({"affinity": before}, made)
    assert read == ((nodes,) if nodes or own else ())
    assert affinity(make_plan(nodes=read), before) == made
