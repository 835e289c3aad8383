"""The forecaster of one service: hears work as it is measured, answers what must be ready at a horizon.

Samples of one step are taken together to their mean. Once per step everything is brought up to date (a fraction of a
millisecond); between steps the answer stands. The horizon is the measured cold start, which moves: a move by less than
a fifth changes nothing, a larger one keeps the history and what was learned about the methods, and begins new accounts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import numpy as np

from berth.inference.forecast import record
from berth.inference.forecast.history import DAY_SECONDS, History
from berth.inference.forecast.margins import Margins
from berth.inference.forecast.methods import METHODS, PERSISTENCE, TRENDS, peaks
from berth.inference.forecast.promise import Level, Steering
from berth.inference.forecast.race import MOST, Race
from berth.inference.target import Target

STEP_SECONDS: Final = 60.0
REPLAY_HORIZON_SECONDS: Final = 180.0
TRUSTED_STEPS: Final = 120
PROMISES_KEPT: Final = 4
LONGEST_SPAN: Final = 60  # steps; a cold start of an hour
SET_BACK_STEPS: Final = 3
"""After so many steps of which all came late it is the clock that has been set back."""
_STRICTEST, _LOOSEST = 1e-5, 0.5
_SPAN_MOVES: Final = 0.2


class DemandModel:
    """What demand of one service will be. Time is unix seconds, work in reference replicas, at any rate of samples.

    ``lowest`` and ``highest`` replicas bound what the back-test may ask for, as they bound the service.
    """

    def __init__(self, step_seconds: float = STEP_SECONDS, *, lowest: float = 1.0, highest: float = MOST) -> None:
        self.step_seconds = step_seconds
        self.lowest, self.highest = lowest, highest
        self.history = History(step_seconds)
        self.level = Level()
        self.margins: Margins | None = None
        self.race: Race | None = None
        self.steering: dict[float, Steering] = {}
        self._open: int | None = None  # the step whose samples are still coming
        self._sum, self._samples = 0.0, 0
        self._late: int | None = None  # the first of the steps that came late one after the other

    def observe(self, at: float, work: float | None) -> None:
        """``work`` at ``at``; None, not finite or negative: not known.

        What comes late, for a step gone by, is lost. Where everything does for :data:`SET_BACK_STEPS`, the clock was
        ahead and has been set back: the steps are numbered on from here.
        """
        number = int(at // self.step_seconds)
        if self._open is not None and number > self._open:
            self._close()
        if work is None or not math.isfinite(work) or work < 0:
            return
        if self._is_late(number) and not self._is_set_back(number):
            return
        self._late = None
        if self._open is None:
            self._open, self._sum, self._samples = number, 0.0, 0
        self._sum += work
        self._samples += 1

    def replay(
        self, samples: Iterable[tuple[float, float | None]], horizon_seconds: float = REPLAY_HORIZON_SECONDS
    ) -> None:
        """What a source remembers, oldest first, in place of the history so far.

        What a record brought of the back-test is kept. Without it the back-test runs over the last day of ``samples``
        at this horizon: all of it would take seconds.
        """
        margins, race, steering = self.margins, self.race, self.steering
        self.history, self.level = History(self.step_seconds), Level()
        self.margins = self.race = None
        self.steering = {}
        self._open = None
        ordered = list(samples)
        race_from = max((at for at, _ in ordered), default=0.0) - DAY_SECONDS if race is None else math.inf
        for at, work in ordered:
            self.observe(at, work)
            if self.race is None and at >= race_from and self.history.count:
                self._aim(self._span(horizon_seconds))
        if race is not None and margins is not None:
            self.margins, self.race, self.steering = margins, race, steering
            if self.history.count:
                margins.add(self.history, missed=1)

    def target(self, now: float, horizon_seconds: float, promise: float) -> Target:
        """What must be ready ``horizon_seconds`` from ``now`` so that at most ``promise`` of the work is late.

        Before the first step has ended, what was seen of it stands for everything.
        """
        if self._open is not None and int(now // self.step_seconds) > self._open:
            self._close()
        if not self.history.count:
            if not self._samples:
                return Target(None)
            seen = self._sum / self._samples
            return Target(seen, seen, 1 - promise, METHODS[PERSISTENCE].name)
        self._aim(self._span(horizon_seconds))
        return self._answer(self._steered(min(max(promise, _STRICTEST), _LOOSEST)), promise)

    def peak(self, seconds: float) -> float | None:
        """The most that may come within ``seconds``, without a margin; None before anything was measured.

        By the method that leads at the service's own horizon, a trend no further than that, and by what there was at
        that time yesterday: it is for what is cheap to have in vain. Nothing is learned from it.
        """
        if not self.history.count or self.race is None or self.margins is None:
            return None
        leading = next(iter(self.steering.values()), None)
        method = self.race.best(round(leading.price) if leading is not None else 0)[0]
        steps = max(1, math.ceil(seconds / self.step_seconds))
        foreseen = peaks(self.history, self.span if method in TRENDS else steps)[method]
        yesterday = self.history.expect(self.history.last + 1 + np.arange(steps))[0]
        return max(float(foreseen), float(np.nan_to_num(yesterday).max()))

    def yesterday(self, now: float, horizon_seconds: float) -> float | None:
        """The peak of demand until ``horizon_seconds`` from ``now`` as it was a day ago; None where none is known."""
        ahead = int(now // self.step_seconds) + np.arange(self._span(horizon_seconds))
        seen = self.history.expect(ahead)[0]
        known = seen[~np.isnan(seen)]
        return float(known.max()) if known.size else None

    @property
    def span(self) -> int:
        """Steps from a decision to the end of the cold start that is planned with; 0 before anybody asked."""
        return self.margins.span if self.margins is not None else 0

    def _is_late(self, number: int) -> bool:
        if self._open is not None:
            return number < self._open
        return bool(self.history.count) and number <= self.history.last

    def _is_set_back(self, number: int) -> bool:
        """Whether so many steps came late that the clock must have been set back; then the next is ``number``."""
        if self._late is None or number < self._late:
            self._late = number
        if number - self._late < SET_BACK_STEPS:
            return False
        self._open, self._samples = None, 0
        if self.history.count:
            self.history.last = number - 1
        if self.race is not None:
            self.race.rest()
        for account in self.steering.values():
            account.rest()
        return True

    def _close(self) -> None:
        """The open step is over: learn from it, and decide anew."""
        assert self._open is not None
        number, value = self._open, self._sum / self._samples
        self._open, self._samples = None, 0
        missed = number - self.history.last - 1 if self.history.count else 0
        accounts = list(self.steering.values())
        if self.race is not None:
            if missed:
                self.race.rest()
            self.race.judge(value)
            for account in accounts:
                if missed:
                    account.rest()
                account.judge(value)
        self.history.add(number, value)
        self.level.add(value)
        if self.race is None or self.margins is None:
            return
        foreseen, units = self.margins.add(self.history, missed)
        self.race.ask(foreseen, units, self.lowest, self.highest)
        for account in accounts:
            account.ask(self.race, self.level, self.history.day)

    def _span(self, horizon_seconds: float) -> int:
        return min(max(1, math.ceil(horizon_seconds / self.step_seconds - 1e-9)) + 1, LONGEST_SPAN)

    def _aim(self, span: int) -> None:
        """Plan for a cold start of ``span`` - 1 steps."""
        old, race = self.margins, self.race
        if old is not None and race is not None and abs(span - old.span) <= _SPAN_MOVES * old.span:
            return
        now = float(self.history.recent[-1])
        self.margins = Margins(span)
        self.race = Race(span, self.history.day, max(now, self.lowest))
        if old is not None and race is not None:
            self.margins.adopt(old)
            self.race.adopt(race)
        foreseen, units = self.margins.add(self.history, 0)
        self.race.ask(foreseen, units, self.lowest, self.highest)
        for account in self.steering.values():
            account.aim(span)
            account.ask(self.race, self.level, self.history.day)

    def _steered(self, promise: float) -> Steering:
        assert self.race is not None
        account = self.steering.get(promise)
        if account is None:
            while len(self.steering) >= PROMISES_KEPT:
                del self.steering[next(iter(self.steering))]
            first = min(max(math.ceil(float(self.history.recent[-1])), self.lowest), self.highest)
            account = self.steering[promise] = Steering(promise, self.span, first)
            account.ask(self.race, self.level, self.history.day)
        return account

    def _answer(self, account: Steering, promise: float) -> Target:
        assert self.race is not None
        assert self.margins is not None
        method = self.race.best(round(account.price))[0]
        mean = self.history.mean
        known = self.margins.count >= 1 and mean > 0
        error = self.margins.constant
        return Target(
            work=account.replicas,
            point=float(self.margins.made[self.margins.newest, method]),
            quantile=1 - promise,
            method=METHODS[method].name,
            wape=float(error[method]) / mean if known else None,
            persistence_wape=float(error[PERSISTENCE]) / mean if known else None,
            coverage=account.covered / account.steps if account.steps else 0.0,
            trusted=account.steps >= TRUSTED_STEPS,
            served=1 - account.unserved / account.offered if account.offered > 0 else 1.0,
        )

    def pack(self) -> bytes:
        """A compact record, at most ``record.LIMIT_BYTES``."""
        fields = {
            "bounds": [self.step_seconds, self.lowest, self.highest],
            "open": [self._open, self._sum, self._samples],
            **record.history_fields(self.history),
            **record.steering_fields(self.steering, self.level),
        }
        if self.margins is not None and self.race is not None:
            fields |= record.margins_fields(self.margins) | record.race_fields(self.race)
        return record.encode(fields)

    @classmethod
    def unpack(cls, packed: bytes) -> DemandModel:
        """The inverse of :meth:`pack`; its next answer is the same. Raises: BadRecord, a ValueError."""
        fields = record.decode(packed)
        try:
            step_seconds, lowest, highest = fields["bounds"]
            model = cls(step_seconds, lowest=lowest, highest=highest)
            model._open, model._sum, model._samples = fields["open"]
            record.restore_history(model.history, fields)
            if "span" in fields:
                model.margins = record.restore_margins(fields)
                model.race = record.restore_race(fields, model.span, model.history.day)
                foreseen = model.margins.made[model.margins.newest]
                model.race.resume(foreseen, model.margins.units(foreseen, model.history), lowest, highest)
            model.steering = record.restore_steering(fields, max(model.span, 1), model.level)
        except (KeyError, TypeError, IndexError, ValueError) as problem:
            raise record.BadRecord(f"the forecast record is damaged: {problem!r}") from problem
        return model
