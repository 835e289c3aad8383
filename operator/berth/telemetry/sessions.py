"""How Berth speaks HTTP with what it asks for demand: a server leads nowhere else and is remembered by nothing."""

from __future__ import annotations

from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx


def session(**options: Any) -> httpx.AsyncClient:
    """A client with ``options`` that follows no redirect and keeps no cookie. Close it at the end."""
    jar = CookieJar(DefaultCookiePolicy(allowed_domains=[]))
    return httpx.AsyncClient(follow_redirects=False, cookies=jar, **options)
