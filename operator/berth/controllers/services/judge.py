"""Whether the API server would take the pods of a service's variants, asked before a template is applied.

A Deployment takes any template and its pods are refused later, one by one, after a rollout has begun to end those that
serve. So the server is asked by a dry run of one pod, once for every template: Pod Security, LimitRanges and the
template's own mistakes speak in its words, and no copy of its rules can age here. A quota is no judge of a template:
what it leaves no room for is said by the Deployment when it comes to that.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from berth.cluster.client import ApiClient
from berth.cluster.errors import ApiError, BadRequest, Forbidden, Invalid, NotFound
from berth.cluster.kinds import PODS
from berth.controllers.facts import shorten
from berth.controllers.services.plans import deployment_plan
from berth.controllers.services.view import ServiceKey, ServiceView
from berth.fleet.fleet import Fleet
from berth.inference.records import Variant
from berth.inference.service import Plan
from berth.render.service.plan import Json
from berth.render.service.pod import probe_pod

REFUSED_SECONDS: Final = 30.0
"""A refused template is tried again after so long: Pod Security levels change and what it names appears."""


@dataclass(frozen=True, slots=True)
class _Opinion:
    """Of a template: the server's ``words`` against it, empty where there are none, and until when that holds."""

    words: str
    until: float


class TemplateJudge:
    """Asks about templates; ``again`` is called with a service's key and the seconds after which to look again."""

    def __init__(
        self,
        client: ApiClient,
        fleet: Fleet,
        *,
        again: Callable[[ServiceKey, float], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._fleet, self._again, self._clock = client, fleet, again, clock
        self._opinions: dict[str, dict[str, _Opinion]] = {}  # uid -> template -> opinion

    def forget(self, uid: str) -> None:
        """The service is gone."""
        self._opinions.pop(uid, None)

    async def refusals(
        self,
        view: ServiceView,
        plan: Plan,
        variants: Mapping[str, Variant],
        templates: Mapping[str, str],
        live: Mapping[str, str],
    ) -> dict[str, str]:
        """Variants of ``plan`` whose pods would be refused, with the server's words.

        ``templates``: the digest of what each variant in use is to run; ``live``: of what it runs already, which was
        taken once. Raises: ClusterError, when the API server cannot be asked.
        """
        opinions, asked = self._opinions.setdefault(view.uid, {}), set()
        refused: dict[str, str] = {}
        for name in plan.counts:
            template = templates.get(name)
            if template is None or live.get(name) == template:
                continue
            asked.add(template)
            known = opinions.get(template)
            if known is None or known.until <= self._clock():
                probe = probe_pod(deployment_plan(view, variants[name], self._fleet))
                known = opinions[template] = await self._ask(view.key[0], probe)
            if known.words:
                refused[name] = known.words
        for template in opinions.keys() - asked:
            del opinions[template]
        if refused:
            self._again(view.key, REFUSED_SECONDS)
        return refused

    async def _ask(self, namespace: str, body: Json) -> _Opinion:
        try:
            await self._client.create(PODS, body, namespace, dry_run=True)
        except Forbidden as problem:
            if problem.not_permitted:
                raise
            return _Opinion("", math.inf) if problem.quota_exceeded else self._refused(problem)
        except (Invalid, NotFound, BadRequest) as problem:
            return self._refused(problem)
        return _Opinion("", math.inf)

    def _refused(self, problem: ApiError) -> _Opinion:
        return _Opinion(shorten(problem.message), self._clock() + REFUSED_SECONDS)
