"""A token bucket, because the API server is the bottleneck of everything that Berth does.

Waiters are served in the order in which they came. When the server answers 429, the whole bucket holds still for
as long as it asked, so that one refusal slows every caller down instead of making each of them find out alone.
"""

from __future__ import annotations

from berth.cluster.clock import SYSTEM_CLOCK, Clock


class TokenBucket:
    """``rate`` tokens a second, at most ``burst`` at once; starts full. A rate of 0 or less means no limit."""

    def __init__(self, rate: float, burst: int, clock: Clock = SYSTEM_CLOCK) -> None:
        self._rate, self._burst, self._clock = rate, float(max(burst, 1)), clock
        self._tokens, self._at = self._burst, clock.now()

    async def take(self) -> float:
        """Wait for a token and return the seconds waited."""
        wait = self.reserve()
        if wait > 0:
            await self._clock.sleep(wait)
        return wait

    def reserve(self) -> float:
        """Take a token, perhaps one that is still to come: the seconds to wait before using it."""
        if self._rate <= 0:
            return max(self._at - self._clock.now(), 0.0)
        self._refill()
        self._tokens -= 1
        return self._debt()

    def try_take(self) -> bool:
        """Take a token if one is there now."""
        there = self.ready() <= 0
        if there:
            self.reserve()
        return there

    def ready(self, count: int = 1) -> float:
        """Seconds until :meth:`reserve` would need no wait, ``count`` times; no more than the burst are ever there."""
        if self._rate <= 0:
            return max(self._at - self._clock.now(), 0.0)
        self._refill()
        self._tokens -= count
        wait = self._debt()
        self._tokens += count
        return wait

    def hold(self, seconds: float) -> None:
        """Give nobody a token for ``seconds``; holds do not add up, the longest counts."""
        self._refill()
        self._at = max(self._at, self._clock.now() + seconds)

    def _refill(self) -> None:
        now = self._clock.now()
        if now > self._at:
            if self._rate > 0:
                self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
            self._at = now

    def _debt(self) -> float:
        """Seconds until the token taken last exists; ``_at`` lies ahead of now while the bucket holds."""
        held = max(self._at - self._clock.now(), 0.0)
        return held + (max(-self._tokens, 0.0) / self._rate)
