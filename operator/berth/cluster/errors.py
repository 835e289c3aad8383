"""What can go wrong between us and the API server, as types that callers can tell apart.

A caller reacts to the type, shows ``message`` (the server's own words) and never parses text.

Exceptions
    ClusterError                  (a BerthError)
    ├── Unreachable               no answer: refused, reset, timed out, session closed; a write may have happened
    ├── Unreadable                an answer that is not what the protocol promises
    ├── NotLeading                a write was about to leave although this replica does not hold the lease
    └── ApiError                  the server answered with a failure: status, reason, message, causes
        ├── BadRequest            400
        ├── Unauthorized          401
        ├── Forbidden             403: RBAC, quota, Pod Security, a namespace that is being deleted
        ├── NotFound              404
        ├── AlreadyExists         409 on create
        ├── Conflict              409: other resourceVersion, uid or field manager
        ├── Expired               410: the resourceVersion or continue token is too old
        ├── Invalid               422: schema or CEL; causes name the fields
        ├── TooManyRequests       429: wait ``retry_after`` seconds
        └── Unavailable           5xx
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from berth.values import BerthError


class ClusterError(BerthError):
    """Root of everything that this package raises."""


class Unreachable(ClusterError):
    """No answer came. ``unsent`` says that the request certainly never left, so that repeating it is safe."""

    def __init__(self, message: str, *, unsent: bool = False) -> None:
        super().__init__(message)
        self.unsent = unsent


class Unreadable(ClusterError):
    """The answer is not what the protocol promises."""


class NotLeading(ClusterError):
    """A write was refused by ourselves: the lease is not held, or not certainly held any more."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause of a failure, as in ``Status.details.causes``; ``field`` is a dotted path or empty."""

    reason: str
    message: str
    field: str = ""


class ApiError(ClusterError):
    """The server answered with a failure.

    ``status`` is the HTTP code, ``reason`` the machine-readable word of the Status object (``AlreadyExists``),
    ``message`` the server's sentence for people, ``causes`` its details, ``retry_after`` seconds or None.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        causes: tuple[Cause, ...] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{status} {reason}: {message}" if reason else f"{status}: {message}")
        self.status, self.reason, self.message = status, reason, message
        self.causes, self.retry_after = causes, retry_after

    def caused_by(self, reason: str) -> bool:
        """Whether one of the causes has this ``reason``, such as ``NamespaceTerminating``."""
        return any(cause.reason == reason for cause in self.causes)


class BadRequest(ApiError):
    """400."""


class Unauthorized(ApiError):
    """401: the token is not valid, or not any more."""


class Forbidden(ApiError):
    """403."""

    @property
    def quota_exceeded(self) -> bool:
        """Whether a ResourceQuota has no room for the object, or is too new to know.

        The only sign of it is in the server's sentence. One that demands a field of the object speaks of the object.
        """
        return any(words in self.message for words in _QUOTA_SHORT)

    @property
    def no_service_account(self) -> bool:
        """Whether the pod names a ServiceAccount that is not there. The only sign of it is in the sentence."""
        return "error looking up service account" in self.message

    @property
    def not_permitted(self) -> bool:
        """Whether the server's authorizer refused the caller, before it looked at the object.

        The only sign of it is in the server's sentence, whose form is that of every authorizer.
        """
        return _NOT_PERMITTED.search(self.message) is not None


class NotFound(ApiError):
    """404."""


class AlreadyExists(ApiError):
    """409 on create: the name is taken."""


class Conflict(ApiError):
    """409: a precondition on resourceVersion or uid failed, or another field manager owns a field."""


class Expired(ApiError):
    """410: start again with a fresh list."""


class Invalid(ApiError):
    """422: the object breaks its schema or a rule; ``causes`` name the fields."""


class TooManyRequests(ApiError):
    """429: the server asks us to slow down."""


class Unavailable(ApiError):
    """5xx: the server, or what stands before it, cannot answer now."""


def log_level(problem: ClusterError, failures: int) -> int:
    """How loud a look that failed is: its first conflict is how writers take turns, and worth no one's attention.

    ``failures``: how often in a row the object's looks have failed, this one included.
    """
    return logging.INFO if isinstance(problem, Conflict) and failures <= 1 else logging.WARNING


class _WireCause(msgspec.Struct, rename="camel"):
    reason: str = ""
    message: str = ""
    field: str = ""


class _Details(msgspec.Struct, rename="camel"):
    causes: tuple[_WireCause, ...] = ()
    retry_after_seconds: float = 0


class Status(msgspec.Struct, rename="camel"):
    """``metav1.Status``, the body of every failure."""

    kind: str = ""
    reason: str = ""
    message: str = ""
    code: int = 0
    details: _Details | None = None


_QUOTA_SHORT: Final = ("exceeded quota", "insufficient quota", "status unknown for quota")
_NOT_PERMITTED: Final = re.compile(r'User "[^"]*" cannot [a-z]+ (resource|path) ')

_BY_STATUS: Final[Mapping[int, type[ApiError]]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    422: Invalid,
    429: TooManyRequests,
}
_STATUS: Final = msgspec.json.Decoder(Status)


def api_error(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> ApiError:
    """The failure that an answer states. A body that is no Status (a proxy's page) becomes the message, cut short."""
    try:
        stated = _STATUS.decode(body)
    except msgspec.MsgspecError:
        stated = Status()
    if stated.kind != "Status":
        stated = Status(message=body[:300].decode("utf-8", "replace").strip())
    return status_error(stated, status, retry_after=_retry_after(stated, headers or {}))


def status_error(stated: Status, status: int = 0, *, retry_after: float | None = None) -> ApiError:
    """The failure that a Status object states, as in the ERROR event of a watch; ``status`` overrides its code."""
    status = status or stated.code
    kind = _BY_STATUS.get(status, Unavailable if status >= 500 else ApiError)
    if status == 409 and stated.reason == "AlreadyExists":
        kind = AlreadyExists
    if stated.reason == "Expired":
        kind = Expired
    details = stated.details or _Details()
    causes = tuple(Cause(cause.reason, cause.message, cause.field) for cause in details.causes)
    return kind(status, stated.reason, stated.message or "no reason given", causes, retry_after)


def _retry_after(stated: Status, headers: Mapping[str, str]) -> float | None:
    """Seconds from the header, else from the Status; the header's form with a date is not used by API servers."""
    text = headers.get("Retry-After", "").strip()
    if text.isdecimal():
        return float(text)
    if stated.details is not None and stated.details.retry_after_seconds > 0:
        return stated.details.retry_after_seconds
    return None
