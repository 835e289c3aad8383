"""What a 403 of an API server is about. The sentences are those of Kubernetes 1.37."""

from __future__ import annotations

import pytest

from berth.cluster.errors import Forbidden

POD = 'pods "llm-1-0" is forbidden: '
PERMITTED = 'User "system:serviceaccount:b:berth" cannot create resource "pods" in API group "" in the namespace "n"'


@pytest.mark.parametrize(
    ("words", "quota", "permission"),
    [
        (POD + "exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3", True, False),
        (POD + "insufficient quota to match these scopes: [{PriorityClass In [high]}]", True, False),
        (POD + "status unknown for quota: q, resources: pods", True, False),
        (POD + "failed quota: q: must specify limits.memory for: worker", False, False),
        (POD + 'violates PodSecurity "baseline:latest": non-default capabilities (IPC_LOCK)', False, False),
        (POD + 'no PriorityClass with name "quota" was found', False, False),
        ("pods is forbidden: " + PERMITTED, False, True),
        (POD + "unable to create new content in namespace n because it is being terminated", False, False),
    ],
)  # fmt: skip
def test_what_a_403_is_about(words: str, quota: bool, permission: bool) -> None:
    problem = Forbidden(403, "Forbidden", words)
    assert (problem.quota_exceeded, problem.not_permitted) == (quota, permission)
