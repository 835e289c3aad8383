"""Random lives of a watch: whatever is dropped, repeated, expired or overtaken, the end is the same."""

from __future__ import annotations

import asyncio
import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from berth.cluster.kinds import PODS
from tests.unit.cluster.caches import watching
from tests.unit.cluster.fakes import ApiServer, eventually, listening

STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["add", "delete", "recreate", "put"]), st.sampled_from("abc")),
        st.tuples(st.sampled_from(["cut", "forget", "bookmark", "breathe"]), st.just("")),
    ),
    max_size=25,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_whatever_happens_the_cache_ends_where_the_server_is(steps: list[tuple[str, str]]):
    """Events dropped, coalesced, expired, overtaken by our own writes: the final state is the same."""
    asyncio.run(_converges(steps))


async def _converges(steps: list[tuple[str, str]]) -> None:
    pods = ApiServer()
    async with listening(pods), watching(pods, page=2) as cache:
        mirror: dict[str, str] = {}
        cache.subscribe(lambda old, new: mirror.pop(old.metadata.uid) if old else None)
        cache.subscribe(lambda old, new: mirror.update({new.metadata.uid: new.metadata.name}) if new else None)
        for number, (step, name) in enumerate(steps):
            match step:
                case "add":
                    pods.add(name, uid=pods.pods[name]["metadata"]["uid"] if name in pods.pods else f"{name}{number}")
                case "delete" if name in pods.pods:
                    pods.delete(name)
                case "recreate" if name in pods.pods:
                    pods.delete(name)
                    pods.add(name, uid=f"{name}{number}")
                case "put" if name in pods.pods:
                    cache.put(PODS.decode(json.dumps(pods.pods[name]).encode()))
                case "cut":
                    pods.cut()
                case "forget":
                    pods.forget()
                case "bookmark":
                    pods.bookmark()
                case "breathe":
                    await asyncio.sleep(0.001)
        pods.add("last")

        def same() -> bool:
            known = {(each.metadata.uid, each.metadata.resource_version) for each in cache}
            held = pods.pods.values()
            return known == {(each["metadata"]["uid"], each["metadata"]["resourceVersion"]) for each in held}

        await eventually(same)
        assert mirror == {each.metadata.uid: each.metadata.name for each in cache}
