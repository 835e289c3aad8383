"""A forecaster in 4 KB, for an operator that restarts where no source remembers demand.

Profiles go coarser and in one byte a value, scores only of the candidates that are followed; the others rejoin the race
behind them. What was asked for last is kept exactly, so a restart alone moves no replica.
"""

from __future__ import annotations

import zlib
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from berth.inference.forecast.history import Floats, History
from berth.inference.forecast.margins import Margins
from berth.inference.forecast.methods import METHODS
from berth.inference.forecast.promise import Level, Steering
from berth.inference.forecast.race import CANDIDATES, MEMBERS, PRICES, Race

VERSION: Final = 2
LIMIT_BYTES: Final = 4096
_DAY_BINS: Final = (288, 576)
_WEEK_BINS: Final = 672
_KEPT: Final = 4  # candidates by price
_BEHIND: Final = 1.3
_UNKNOWN: Final = 255


class BadRecord(ValueError):
    """A record that cannot be read: from another version, or damaged."""


def encode(fields: dict[str, Any]) -> bytes:
    """Packed and compressed."""
    return zlib.compress(msgspec.msgpack.encode({"version": VERSION, **fields}), 9)


def decode(record: bytes) -> dict[str, Any]:
    """The inverse of :func:`encode`. Raises: BadRecord."""
    try:
        fields = msgspec.msgpack.decode(zlib.decompress(record))
    except (zlib.error, msgspec.DecodeError) as problem:
        raise BadRecord(f"the forecast record cannot be read: {problem}") from problem
    if not isinstance(fields, dict) or fields.get("version") != VERSION:
        raise BadRecord("the forecast record is of another version")
    return fields


def history_fields(history: History) -> dict[str, Any]:
    """What of ``history`` is kept."""
    return {
        "count": history.count,
        "last": history.last,
        "recent": _floats(history.recent),
        "smooth": _floats(history.smooth),
        "steady": _floats(np.stack([history.steady, history.lasted])),
        "hours": _floats(history.hours),
        "levels": _floats(np.concatenate([history.level, history.offset.ravel(), history.expected.ravel()])),
        "scalars": [history.peak, history.mean],
        "days": [_coarse(row, bins) for row, bins in zip(history.days, _DAY_BINS, strict=True)],
        "week": _coarse(history.week, _WEEK_BINS),
    }


def restore_history(history: History, fields: dict[str, Any]) -> None:
    """Fill ``history``, which is new."""
    history.count, history.last = int(fields["count"]), int(fields["last"])
    history.recent[:] = _array(fields["recent"])
    history.smooth[:] = _array(fields["smooth"])
    history.steady[:], history.lasted[:] = _array(fields["steady"]).reshape(2, -1)
    history.hours[:] = _array(fields["hours"])
    levels = _array(fields["levels"])
    speeds, profiles = len(history.level), len(history.offset)
    history.level[:] = levels[:speeds]
    history.offset[:] = levels[speeds : speeds * (1 + profiles)].reshape(profiles, speeds)
    history.expected[:] = levels[speeds * (1 + profiles) :].reshape(profiles, speeds)
    history.peak, history.mean = (float(value) for value in fields["scalars"])
    for row, packed in zip(history.days, fields["days"], strict=True):
        row[:] = _fine(packed, len(row))
    history.week[:] = _fine(fields["week"], len(history.week))


def margins_fields(margins: Margins) -> dict[str, Any]:
    """What of ``margins`` is kept; errors by the time of day as shares of the mean one, over all methods."""
    known = margins.daytime / np.maximum(margins.constant, 1e-9)
    shares = np.full(len(known), np.nan)
    seen = ~np.isnan(known[:, 0])
    shares[seen] = known[seen].mean(axis=1)
    return {
        "span": margins.span,
        "margin_count": margins.count,
        "errors": _floats(np.concatenate([margins.constant, margins.root, margins.lately])),
        "daytime": _bytes(shares),
        "made": _floats(margins.made[margins.newest]),
        "newest": margins.newest,
    }


def restore_margins(fields: dict[str, Any]) -> Margins:
    """The inverse of :func:`margins_fields`, as far as it goes."""
    margins = Margins(int(fields["span"]))
    margins.count = int(fields["margin_count"])
    margins.constant, margins.root, margins.lately = _array(fields["errors"]).reshape(3, len(METHODS))
    margins.daytime[:] = _values(fields["daytime"])[:, None] * margins.constant
    margins.made[int(fields["newest"])] = _array(fields["made"])
    margins.newest = int(fields["newest"])
    return margins


def race_fields(race: Race) -> dict[str, Any]:
    """What of ``race`` is kept: the accounts of prices, and the candidates that they follow most."""
    order = np.argsort(-race.weights, axis=1, kind="stable")[:, :_KEPT]
    members = np.take_along_axis(race.members, order, axis=1)
    weights = np.take_along_axis(race.weights, order, axis=1)
    return {
        "race_count": race.count,
        "carried": race.carried,
        "offered": race.offered,
        "asked": _floats(race.asked),
        "unserved": _floats(race.unserved),
        "members": members.astype(np.uint16).tobytes(),
        "weights": weights.astype(np.float16).tobytes(),
        "scores": _floats(np.stack([race.cost[members], race.lost[members]])),
    }


def restore_race(fields: dict[str, Any], span: int, day: int) -> Race:
    """The inverse of :func:`race_fields`, as far as it goes."""
    race = Race(span, day, 0.0)
    race.count = int(fields["race_count"])
    race.carried, race.offered = float(fields["carried"]), float(fields["offered"])
    race.asked = _array(fields["asked"])
    race.followed[:] = np.ceil(race.asked - 1e-6)
    race.unserved = _array(fields["unserved"])
    kept = np.frombuffer(fields["members"], dtype=np.uint16).astype(np.int64).reshape(len(PRICES), _KEPT)
    if kept.max() >= CANDIDATES:
        raise BadRecord("the forecast record names candidates that do not exist")
    weights = np.frombuffer(fields["weights"], dtype=np.float16).astype(np.float64).reshape(kept.shape)
    cost, lost = _array(fields["scores"]).reshape(2, *kept.shape)
    race.cost[:], race.lost[:] = _BEHIND * cost.max(), _BEHIND * lost.max()
    race.cost[kept], race.lost[kept] = cost, lost
    race.members = np.tile(kept[:, :1], MEMBERS)
    race.members[:, :_KEPT] = kept
    race.weights = np.zeros(race.members.shape)
    race.weights[:, :_KEPT] = weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-9)
    return race


def steering_fields(accounts: dict[float, Steering], level: Level) -> dict[str, Any]:
    """The accounts of promises."""
    return {
        "level": [level.count, level.now, level.highest],
        "steering": [
            [a.share, a.unserved, a.offered, a.steps, a.covered, a.count, a.price, a.replicas]
            for a in accounts.values()
        ],
    }


def restore_steering(fields: dict[str, Any], span: int, level: Level) -> dict[float, Steering]:
    """The inverse of :func:`steering_fields`; a cold start has passed since."""
    count, level.now, level.highest = fields["level"]
    level.count = int(count)
    accounts: dict[float, Steering] = {}
    for share, unserved, offered, steps, covered, asked, price, replicas in fields["steering"]:
        account = Steering(float(share), span, float(replicas))
        account.unserved, account.offered = float(unserved), float(offered)
        account.steps, account.covered, account.count = int(steps), int(covered), int(asked)
        account.price = float(price)
        accounts[account.share] = account
    return accounts


def _floats(values: Floats | NDArray[np.float32]) -> bytes:
    return values.astype(np.float32).tobytes()


def _array(packed: bytes) -> Floats:
    return np.frombuffer(packed, dtype=np.float32).astype(np.float64)


def _coarse(row: NDArray[np.float32], bins: int) -> bytes:
    # Means of equal parts of a profile; a part is known where any of it is.
    at = np.arange(len(row)) * bins // len(row)
    known = ~np.isnan(row)
    counts = np.bincount(at[known], minlength=bins)
    sums = np.bincount(at[known], weights=row[known], minlength=bins)
    return _bytes(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))


def _fine(packed: bytes, length: int) -> Floats:
    values = _values(packed)
    return values[np.arange(length) * len(values) // length]


def _bytes(values: Floats) -> bytes:
    # One byte each on a scale of square roots, for small values matter too; the highest goes before them.
    known = values[~np.isnan(values)]
    top = max(float(known.max()), 1e-9) if len(known) else 1.0
    share = np.sqrt(np.clip(np.nan_to_num(values) / top, 0.0, 1.0))
    codes = np.where(np.isnan(values), _UNKNOWN, np.round(share * (_UNKNOWN - 1))).astype(np.uint8)
    return np.float32(top).tobytes() + codes.tobytes()


def _values(packed: bytes) -> Floats:
    top = float(np.frombuffer(packed[:4], dtype=np.float32)[0])
    codes = np.frombuffer(packed[4:], dtype=np.uint8).astype(np.float64)
    return np.where(codes == _UNKNOWN, np.nan, (codes / (_UNKNOWN - 1)) ** 2 * top)
