"""Whatever the cluster, the user and the operator's own crashes do, in any order, the gang's promises hold.

The job's state goes through the JSON of its status before every look, and of the changes that are no transition none
is written, so every look is one after a restart of the operator.
"""

from __future__ import annotations

import contextlib
import copy
from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from berth.training.lifecycle import advance
from berth.training.records import Placement
from berth.training.recovery import Rule
from berth.training.state import FINISHED, Cause, NodeState, Phase, Reason, Refused, Step
from tests.builders.training import Crash, StoredJob, active, make_job, make_placement

NODES = [f"n{number}" for number in range(6)]
RULES = (Rule("fatal", "Fail", "In", (3,)), Rule("free", "RestartFree", "In", (7,)))
REJECTIONS = [None, ("QuotaReserved", "QuotaExceeded", "exceeded quota"), ("Accepted", "TemplateRefused", "no")]
MOST_RESTARTS = 3
RANKS = st.integers(0, 2)


class Gang(RuleBasedStateMachine):
    """One gang of three on six nodes."""

    @initialize(
        force=st.sampled_from([None, 300.0]),
        duration=st.sampled_from([None, 5000.0]),
        restarts=st.integers(0, MOST_RESTARTS),
        running=st.sampled_from([True, True, False]),
    )
    def begin(self, force: float | None, duration: float | None, restarts: int, running: bool) -> None:
        job = make_job(3, start_timeout=120.0, max_start_attempts=3, max_restarts=restarts, rules=RULES)
        self.live = StoredJob(replace(job, force_delete_after=force, max_duration=duration), lazy=True)
        self.blame: set[str] = set()
        self.asked = False
        if running:
            self.gang_starts(crash=None)

    @rule(crash=st.none() | st.integers(0, 5))
    def look(self, crash: int | None) -> None:
        """One look of the operator, which may die after a few actions; a job that asked for a placement gets one."""
        live, before = self.live, self.live.recall()
        live.crash_after = None if crash is None else live.actions + crash
        asked, self.asked = self.asked, False
        made, living = len(live.created), {pod.attempt for pod in live.pods.values() if not pod.ended}
        with contextlib.suppress(Crash):
            self.asked = live.look(self.free_nodes() if asked else None).wants_placement
        live.crash_after = None
        state = live.recall()
        if len(live.created) > made:
            assert living <= {state.attempt}, "pods of two attempts at once"
            assert {live.pods[name].attempt for name in live.created[made:]} == {state.attempt}
        assert before.phase not in FINISHED or state.phase == before.phase
        self.check_charge()
        if state.attempt > before.attempt:
            self.blame.clear()

    @rule(crash=st.none() | st.integers(0, 5))
    def gang_starts(self, crash: int | None) -> None:
        """The next attempt gets as far as the cluster lets it."""
        for _ in range(3):
            self.look(crash=None)
        if active(self.live.state):
            self.all_pods_run()
        self.look(crash=crash)

    def free_nodes(self) -> Placement | None:
        avoid = self.live.state.avoid
        good = [node for node in NODES if self.live.nodes.get(node, NodeState.OK) == NodeState.OK]
        usable = [node for node in good if node not in avoid] or good
        return make_placement(*(usable[rank % len(usable)] for rank in range(3))) if usable else None

    def check_charge(self) -> None:
        """Only what the workers did themselves is a failure."""
        state = self.live.state
        assert state.restarts.failure <= MOST_RESTARTS + 1
        last = state.attempts[-1] if state.attempts else None
        if last is not None and last.cause == Cause.FAILURE:
            assert self.blame & {"failed", "deadline"}, last

    @precondition(lambda self: active(self.live.state))
    @rule(rank=RANKS, ready=st.booleans())
    def pod_runs(self, rank: int, ready: bool) -> None:
        for pod in self.live.living():
            if pod.rank == rank and self.live.node_of(pod) != NodeState.GONE:
                self.live.change(rank, phase="Running", bound=True, ready=ready, problem="", refused="")

    @precondition(lambda self: active(self.live.state))
    @rule()
    def all_pods_run(self) -> None:
        for rank in range(3):
            self.pod_runs(rank=rank, ready=True)
        if self.live.job.max_duration is not None:
            self.blame.add("deadline")

    @precondition(lambda self: active(self.live.state))
    @rule(rank=RANKS, code=st.sampled_from([0, 1, 3, 7, 137]))
    def pod_ends(self, rank: int, code: int) -> None:
        for pod in self.live.living():
            if pod.rank == rank and pod.bound and code:
                self.live.fail(rank, code)
                self.blame.add("failed" if code != 7 else "free")
            elif pod.rank == rank and pod.bound:
                self.live.change(rank, phase="Succeeded", ready=False, exits=(("worker", 0),))

    @precondition(lambda self: active(self.live.state))
    @rule(likely=st.integers(0, 3))
    def all_succeed(self, likely: int) -> None:
        for rank in range(3 if likely == 0 else 0):
            self.pod_ends(rank=rank, code=0)

    @precondition(lambda self: active(self.live.state))
    @rule(rank=RANKS, what=st.sampled_from(["problem", "refused", "disrupted", "deleted", "vanished"]))
    def pod_suffers(self, rank: int, what: str) -> None:
        for pod in self.live.living():
            if pod.rank != rank or (what == "refused" and pod.bound):
                continue
            match what:
                case "deleted":
                    self.live.change(rank, deleting_since=self.live.now)
                case "vanished":
                    del self.live.pods[pod.name]
                case _:
                    self.live.change(rank, **{what: "for a reason"})

    @rule(node=st.sampled_from(NODES), state=st.sampled_from(NodeState))
    def node_becomes(self, node: str, state: NodeState) -> None:
        self.live.nodes[node] = state

    @rule(holder=st.sampled_from(["", "llm-1-0"]))
    def a_name_is_held(self, holder: str) -> None:
        """Pods of an earlier job of the same name come to be known, or go."""
        self.live.name_held = holder

    @rule()
    def kubelets_answer(self) -> None:
        self.live.kubelets()

    @rule()
    def garbage_is_collected(self) -> None:
        """Pods of nodes that are gone vanish without anybody's doing."""
        for pod in list(self.live.pods.values()):
            if self.live.node_of(pod) == NodeState.GONE:
                del self.live.pods[pod.name]

    @rule(seconds=st.sampled_from([1, 30, 61, 120, 700, 6000]))
    def time_passes(self, seconds: int) -> None:
        self.live.wait(seconds)

    @rule(suspended=st.sampled_from([False, False, True]))
    def user_suspends_or_resumes(self, suspended: bool) -> None:
        self.live.job = replace(self.live.job, suspended=suspended)

    @precondition(lambda self: not active(self.live.state))
    @rule(restarts=st.integers(0, MOST_RESTARTS), rejected=st.sampled_from(REJECTIONS))
    def user_edits(self, restarts: int, rejected: tuple[str, str, str] | None) -> None:
        self.live.job = replace(self.live.job, max_restarts=restarts, rejected=rejected)

    @precondition(lambda self: active(self.live.state))
    @rule(reason=st.sampled_from([Reason.CREATE_REFUSED, Reason.QUOTA_EXCEEDED]))
    def api_server_refuses(self, reason: Any) -> None:
        self.live.refused = Refused(reason, "no")

    @invariant()
    def it_comes_to_rest(self) -> None:
        """With nothing changing a few looks lead to one that does nothing, and that one knows what it waits for."""
        live = copy.deepcopy(self.live)
        live.look_until_quiet()
        live.lazy = False
        live.look()
        state = live.recall()
        step = advance(live.job, state, live.sight())
        bare = Step(step.state, wants_placement=step.wants_placement, wake_after=step.wake_after)
        assert step == bare
        assert step.state == state
        assert state.message
        waits_for_pods = any(not pod.ended for pod in live.pods.values())
        assert (
            state.phase in (*FINISHED, Phase.SUSPENDED)
            or waits_for_pods
            or step.wants_placement
            or live.job.rejected is not None
            or step.wake_after is not None
        ), state

    @invariant()
    def the_status_is_of_a_piece(self) -> None:
        state = self.live.recall()
        running = state.conditions.get("AllRunning")
        assert (state.phase == Phase.RUNNING) == (running is not None and running.status == "True")
        assert (state.current is not None) == active(state)
        assert sum(attempt.end is None for attempt in state.attempts) <= 1
        if state.current is not None:
            assert state.placement is not None
            assert state.placement_attempt == state.attempt == state.current.number
            assert state.conditions["Placed"].status == state.conditions["Accepted"].status == "True"

    def teardown(self) -> None:
        """A cluster that heals brings every job to its end."""
        if not hasattr(self, "live"):
            return
        live = self.live
        live.nodes.clear()
        live.refused = None
        live.name_held = ""
        live.job = replace(live.job, suspended=False, rejected=None)
        for _ in range(40):
            live.kubelets()
            step = live.look()
            if live.state.phase in FINISHED:
                return
            if step.wants_placement:
                live.look(make_placement(*NODES[:3]))
            if active(live.state):
                live.run()
            if live.state.phase == Phase.RUNNING:
                live.succeed()
            live.wait(step.wake_after or 1)
        raise AssertionError(f"never ends: {live.state}")


TestGang = Gang.TestCase
TestGang.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
