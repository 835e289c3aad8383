"""What every condition and every event means, and what its reader does about it; the reference prints these tables.

Reasons are API: programs wait for them and alert on them. A reason that the code sets and that is not here, or one here
that nothing sets, fails a test, so the reference neither hides one nor promises one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from berth.api import names
from berth.api.conditions import INTERNAL_ERROR, PoolCondition, ServiceCondition
from berth.api.names import ServiceEvent


@dataclass(frozen=True, slots=True)
class Meaning:
    """One reason: with which ``status`` of its condition it comes, what it says, what to ``do`` (empty: nothing)."""

    status: str
    reason: str
    says: str
    do: str = ""


@dataclass(frozen=True, slots=True)
class ConditionMeaning:
    """One type of condition. ``others``: whose words stand as its reason beside those listed; empty: nobody's."""

    type: str
    says: str
    reasons: tuple[Meaning, ...]
    others: str = ""


@dataclass(frozen=True, slots=True)
class EventMeaning:
    """One reason of events; ``warning`` is the event's type."""

    reason: str
    says: str
    warning: bool = False


_DEFECT: Final = "Berth itself failed on this object, which is a defect of its own."
_REPORT: Final = "Report it with the trace in the operator's log; it is tried again by itself."
_READ: Final = "Correct the field that the message names."

# fmt: off
JOB_CONDITIONS: Final = (
    ConditionMeaning(
        "Accepted",
        "Whether the job can be placed at all, room apart.",
        (
            Meaning("True", "Valid", "The spec can be carried out, and the API server would take such a pod."),
            Meaning("False", "SpecInvalid", "The spec contradicts itself or cannot be read.", _READ),
            Meaning("False", "UnknownAccelerator", "`accelerators.types` names one that the catalogue does not have.", "Take a name of the list in the message, or add the accelerator by an overlay of the catalogue."),
            Meaning("False", "UnknownFabric", "`fabric.kinds` names one that the catalogue does not have.", "Take a name of the list in the message, or add the fabric by an overlay of the catalogue."),
            Meaning("False", "AcceleratorMismatch", "The template asks for other devices than `accelerators`.", "Leave devices out of the template: Berth fills them in."),
            Meaning("False", "UnknownPriorityClass", "`priorityClassName` names none that exists.", "Create the PriorityClass or name another; the job goes on by itself."),
            Meaning("False", "NamespaceTerminating", "The namespace is being deleted."),
            Meaning("False", "TemplateRefused", "The API server would not take a worker's pod, in its own words.", "Change the template, or what refuses it: Pod Security, a LimitRange, a missing ServiceAccount."),
            Meaning("False", INTERNAL_ERROR, _DEFECT, _REPORT),
        ),
    ),
    ConditionMeaning(
        "QuotaReserved",
        "Whether the namespace's ResourceQuota has room for the whole gang; absent while none has refused it.",
        (
            Meaning("True", "Admitted", "The quota that had refused the gang takes it now."),
            Meaning("False", "QuotaExceeded", "A ResourceQuota is too small for the gang; asked again after 30 s to 5 min, uncharged.", "Raise the quota, let others end, or ask for fewer workers."),
        ),
    ),
    ConditionMeaning(
        "MemoryFits",
        "Whether the accelerators hold the model; with `spec.model` only.",
        (
            Meaning("True", "Fits", "The pool holds the model in the gang's memory."),
            Meaning("False", "MemoryUnsatisfied", "No pool's accelerators hold the model in the gang's memory.", "More workers, larger accelerators in `accelerators.types`, or a smaller model."),
        ),
    ),
    ConditionMeaning(
        "FabricSatisfied",
        "Whether the network is what was asked for; with `spec.fabric` only.",
        (
            Meaning("True", "Satisfied", "The pool has the fabric that `spec.fabric` asks for."),
            Meaning("False", "FabricUnsatisfied", "No pool has the kind, speed or rails asked for.", "Loosen `spec.fabric`, or state the fabric in the AcceleratorPool if the nodes have it."),
        ),
    ),
    ConditionMeaning(
        "Placed",
        "Whether the gang has its nodes.",
        (
            Meaning("True", "Optimal", "It has, on as few domains of the preferred level as is provably possible."),
            Meaning("True", "Bounded", "It has; `placement.lowerBound` says how far from the fewest it may be."),
            Meaning("False", "NoCapacity", "It would fit if room were free.", "Wait, or do one of the changes that the message ends with."),
            Meaning("False", "TooLarge", "It would not fit even if the pools were empty.", "Ask for less, or for a looser `topology.required`; or add nodes."),
            Meaning("False", "NoPool", "No pool has an allowed accelerator, the role Training and so many devices a node.", "Change `accelerators`, or the pool's `roles`; `kubectl get apool` shows the stated pools."),
            Meaning("False", "MemoryUnsatisfied", "As in MemoryFits."),
            Meaning("False", "FabricUnsatisfied", "As in FabricSatisfied."),
            Meaning("False", "UnknownLevel", "No pool that fits has the level that `spec.topology` names.", "Name a level of the list in the message, or state it in the pool's `topology`."),
            Meaning("False", "NameHeld", "A pod of an earlier job of this name still has the name of one to come."),
            Meaning("False", "PodsEnding", "Pods of an earlier attempt have not ended.", "If their node does not answer, see the message; `recovery.forceDeleteAfter` ends the wait."),
            Meaning("False", "Restarting", "The last attempt ended; the message says of what."),
            Meaning("False", "Released", "The gang gave its nodes back: it ended, was suspended or was short of quota."),
            Meaning("False", "WriteRefused", "There is a placement, which the API server would not have recorded.", "Read its words in the message; it is tried again with growing pauses."),
            Meaning("False", INTERNAL_ERROR, _DEFECT, _REPORT),
        ),
    ),
    ConditionMeaning(
        "AllRunning",
        "Whether all workers run at once.",
        (
            Meaning("True", "AllRanksRun", "They do."),
            Meaning("False", "Starting", "Not all of them run yet."),
            Meaning("False", "CannotStart", "A container cannot start; after a minute the gang gives its room back.", "Mend the image, Secret, ConfigMap or init container that the message names."),
            Meaning("False", "StatusLost", "The status no longer says what the attempt was; the next one begins.", "Do not edit the status."),
            Meaning("False", "Failure", "The attempt ended by a failure of its own, which is charged.", "Read the worker's log; `attempts` has the exit code."),
            Meaning("False", "Infrastructure", "A node or pod was lost; not charged."),
            Meaning("False", "Preemption", "Another job took the nodes; no job is preempted yet."),
            Meaning("False", "Suspend", "`spec.suspend` ended the attempt."),
            Meaning("False", "StartFailure", "Not all workers came up in time.", "See the message; `startTimeout` bounds it."),
            Meaning("False", "Quota", "A quota refused a pod of the gang; not charged.", "As in QuotaReserved."),
            Meaning("False", "Completed", "All workers exited 0."),
        ),
    ),
    ConditionMeaning(
        "Suspended",
        "Whether the job is held by `spec.suspend`.",
        (
            Meaning("True", "SpecSuspend", "It holds no nodes, and its frozen fields may be changed.", "Set `spec.suspend` to false to queue it again."),
            Meaning("False", "Resumed", "It was queued again."),
        ),
    ),
    ConditionMeaning(
        "Complete", "The job has succeeded.", (Meaning("True", "AllRanksSucceeded", "All workers exited 0."),)
    ),
    ConditionMeaning(
        "Failed",
        "The job has failed for good.",
        (
            Meaning("True", "MaxRestartsExceeded", "It failed more often than `recovery.maxRestarts` forgives.", "Mend the cause in the message and apply the job under another name, or delete it first."),
            Meaning("True", "RuleFailed", "A rule of `recovery.rules` with the action Fail matched."),
            Meaning("True", "StartFailed", "It did not come up in `maxStartAttempts` tries.", "Mend the cause in the message, then as above."),
            Meaning("True", "DeadlineExceeded", "It ran for `maxDuration`."),
        ),
    ),
)
"""Of a TrainingJob."""

_TYPE = ServiceCondition
SERVICE_CONDITIONS: Final = (
    ConditionMeaning(
        _TYPE.ACCEPTED,
        "Whether the spec can be carried out; while it cannot, replicas that run stay.",
        (
            Meaning("True", "Valid", "It can."),
            Meaning("False", "SpecInvalid", "The spec contradicts itself or cannot be read.", _READ),
            Meaning("False", "WeightsUnreadable", "The engine cannot read weights from `model.uri`.", "Take a URI that the message names, or mount the weights by the template."),
            Meaning("False", "NameTaken", "A Service, Deployment or other child of that name belongs to somebody else.", "Rename the service, or delete the object."),
            Meaning("False", "TemplateRefused", "The API server would not take a replica's pod, or a child of the service.", "Change the template, or what refuses it: Pod Security, a LimitRange."),
            Meaning("False", "Forbidden", "An admission policy of the cluster refuses a child of the service.", "See the policy that the message names."),
            Meaning("False", "UnknownPriorityClass", "`priorityClassName` names none that exists; replicas that run stay.", "Create the PriorityClass or name another; the service goes on by itself."),
            Meaning("False", INTERNAL_ERROR, _DEFECT, _REPORT),
        ),
    ),
    ConditionMeaning(
        _TYPE.READY,
        "Whether as many replicas are ready as there must be at least.",
        (
            Meaning("True", "ReplicasReady", "They are."),
            Meaning("True", "Idle", "None is ready and none has to be."),
            Meaning("False", "ReplicasNotReady", "Too few are ready.", "Wait for a cold start; then see the pods."),
            Meaning("False", "ReplicaFailure", "The API server takes no pod of a Deployment, in its own words.", "Mostly a ResourceQuota or Pod Security: raise it, or change the template."),
            Meaning("False", "Unschedulable", "kube-scheduler has found no node for a pod for a minute, in its own words.", "Mostly CPU, memory or a taint: change the template, or the nodes."),
        ),
        others="the kubelet's, of a container that waits: `ImagePullBackOff`, `CrashLoopBackOff`,"
        " `CreateContainerConfigError` and the like; the message has its words",
    ),
    ConditionMeaning(
        _TYPE.PLACED,
        "Whether replicas have something to run on.",
        (
            Meaning("True", "VariantsChosen", "They have; the message says what was left out and why."),
            Meaning("False", "NoCandidate", "No pool can carry the model within the SLO.", "See the message for each accelerator: more devices, another type, a looser SLO, or a pool for Inference."),
            Meaning("False", "ReplicasKept", "Replicas run on what may be used no more, until others carry their work."),
            Meaning("False", "TemplateFitsNoNode", "No node of any pool can take a replica as the template has it.", "Change the field that the message names, or bring nodes that have what it asks for."),
        ),
    ),
    ConditionMeaning(
        _TYPE.METRICS_AVAILABLE,
        "Whether demand is known; absent with `scaling.mode: Manual`.",
        (
            Meaning("True", "Value", "There is demand."),
            Meaning("True", "Idle", "It was measured that there is none."),
            Meaning("False", "SignalsLost", "A part of the signals gives no answer; the service may grow but not shrink.", "See the message for each signal: its source, Prometheus, the names of its metrics."),
            Meaning("False", "Holding", "Nothing is known; for `onUnknown.holdFor` replicas stay as they are.", "As above."),
            Meaning("False", "HoldExpired", "Nothing has been known for longer; `onUnknown.replicas` are kept at least.", "As above."),
        ),
    ),
    ConditionMeaning(
        _TYPE.FORECAST_TRUSTED,
        "Whether the forecast keeps its promise; absent with `scaling.mode: Manual`.",
        (
            Meaning("True", "BackTested", "In the back-test it did."),
            Meaning("False", "PromiseMissed", "In the back-test it left more work unserved than 1.2 times what was promised.", "Keep `warmReplicas` or a higher `minReplicas` where that hurts."),
            Meaning("Unknown", "TooLittleHistory", "There are less than two hours of history."),
            Meaning("Unknown", "NotBackTested", "`forecast.method` names a method without a back-test."),
        ),
    ),
    ConditionMeaning(
        _TYPE.CAPACITY_AVAILABLE,
        "Whether the demand finds a place.",
        (
            Meaning("True", "Sufficient", "It does."),
            Meaning("False", "CapacityLimited", "So much work, or so many of the fewest replicas, find none.", "By the word in brackets: `MaxReplicas` raise it, `Capacity` add nodes or types, else loosen `spot`."),
        ),
    ),
    ConditionMeaning(
        _TYPE.SLO_MET,
        "Whether the measured times keep the SLO; absent while none are measured.",
        (
            Meaning("True", "Met", "They do."),
            Meaning("False", "Missed", "The percentile is over the SLO; for 30 minutes at most nothing is taken away.", "If replicas do not cure it, look for a slow dependency, or for a promise that the hardware cannot keep."),
        ),
    ),
    ConditionMeaning(
        _TYPE.SPOT_AVAILABLE,
        "Whether spot can be had; with `spot.mode` Mixed or Only.",
        (
            Meaning("True", "Available", "It can; the message names zones that are left out."),
            Meaning("False", "NoSpotPool", "No pool that fits has spot nodes.", "Add one, or set `spot.mode` to Never."),
            Meaning("False", "NoSpotRoom", "The spot nodes that fit are taken or gone."),
            Meaning("False", "Recovering", "Reclaims are too recent or too frequent for a start to pay."),
        ),
    ),
    ConditionMeaning(
        _TYPE.EXPOSED,
        "Whether clients from outside reach it; with `expose.scope: Public` only.",
        (
            Meaning("True", "RouteAttached", "The route is there, behind TLS and the policy."),
            Meaning("False", "SpecIncomplete", "`gatewayRef` or `auth.policyRef` is missing.", "Give both."),
            Meaning("False", "GatewayNotFound", "The Gateway does not exist, or the Gateway API is not installed.", "Create it, or correct `expose.gatewayRef`."),
            Meaning("False", "NoTls", "The Gateway has no HTTPS listener with a certificate for these hostnames.", "Add one, or correct `sectionName` and `hostnames`."),
            Meaning("False", "PolicyNotFound", "The policy, or its kind, does not exist.", "Create it: no route without it."),
            Meaning("False", "PolicyElsewhere", "The policy does not target this route.", "Add the HTTPRoute that the message names to its `targetRefs`."),
            Meaning("Unknown", "GatewayUnknown", "The Gateway cannot be read now; the route stays as it is."),
            Meaning("Unknown", "PolicyUnreadable", "The policy cannot be read; the route stays as it is.", "Where the operator may not: list its kind in the chart's value `expose.policies`."),
        ),
    ),
    ConditionMeaning(
        _TYPE.PREFETCHED,
        "Whether replicas to come find their weights; with the chart's `prefetch.enabled`, of services with a `modelCache`.",
        (
            Meaning("True", "Sufficient", "Replicas to come find nodes that hold the weights."),
            Meaning("False", "Fetching", "Weights are being fetched.", "Wait, or raise `prefetch.concurrent`."),
            Meaning("False", "NotKept", "The cache ends with its pod, or the engine streams past it.", "Name a volume that stays, or use `oci://`."),
            Meaning("False", "NoFetcher", "Nothing says how weights are fetched without a server.", "Add an init container that mounts the volume."),
            Meaning("False", "FetchRefused", "The API server takes no fetching pod, in its own words.", "Mostly a quota, Pod Security, or a missing class `berth-prefetch`."),
            Meaning("False", "FetchFailed", "The last fetching pod failed, in its own words.", "See its log within 10 minutes."),
            Meaning("False", "NoCacheRoom", "The nodes with free devices are short of disk.", "Free some."),
        ),
    ),
    ConditionMeaning(
        _TYPE.SCALE_CONTESTED,
        "Somebody else keeps changing the number of replicas of a Deployment; absent otherwise.",
        (
            Meaning("True", "OtherWriter", "The message names the field manager.", "Remove the HPA, KEDA object or script that targets the Deployment; in mode Manual it may target the InferenceService."),
        ),
    ),
)
"""Of an InferenceService."""

POOL_CONDITIONS: Final = (
    ConditionMeaning(
        PoolCondition.READY,
        "Whether the pool has nodes of its own of an accelerator that is known.",
        (
            Meaning("True", "NodesMatched", "It has; the message counts those that gangs cannot use, and why."),
            Meaning("False", "SpecInvalid", "The spec cannot be read; the pool is left out, and its nodes are in discovered pools.", _READ),
            Meaning("False", "NoNodes", "No node matches the selector.", "Compare it with `kubectl get nodes --show-labels`."),
            Meaning("False", "NodesShared", "Another pool selects nodes of it; each belongs to the older pool.", "Make the selectors exclude each other."),
            Meaning("False", "UnknownAccelerator", "The catalogue does not have it, or not its device resource.", "Correct `accelerator`, or add it by an overlay of the catalogue."),
        ),
    ),
    ConditionMeaning(
        PoolCondition.TOPOLOGY_COMPLETE,
        "Whether every node says where it is.",
        (
            Meaning("True", "LabelsFound", "Every node has the label of every level."),
            Meaning("False", "LabelsMissing", "Some nodes lack one, and are near no other node.", "Label them."),
            Meaning("False", "HostInTwoDomains", "One host is in two domains of a level; its nodes take no part.", "Correct their labels."),
            Meaning("Unknown", "NoNodes", "There is no node."),
        ),
    ),
)
"""Of an AcceleratorPool."""

JOB_EVENTS: Final = (
    EventMeaning("Accepted", "The job is valid and queued; not told where it is placed at once."),
    EventMeaning("Rejected", "Condition Accepted or QuotaReserved became False; the note says why.", warning=True),
    EventMeaning("StatusUnreadable", "A field of the status cannot be read, so nothing is done with the job and its pods.", warning=True),
    EventMeaning("Placed", "An attempt has its nodes."),
    EventMeaning("Started", "All workers of an attempt run; the note has the time since it was placed."),
    EventMeaning("StartTimedOut", "Not all ran within `startTimeout`; the room is given back.", warning=True),
    EventMeaning("WorkerFailed", "An attempt ended by a failure, a start that cannot succeed, an eviction or a deleted pod.", warning=True),
    EventMeaning("NodeLost", "An attempt ended because a node was lost; also when a charge is taken back for that.", warning=True),
    EventMeaning("Restarting", "What follows: the next attempt, and whether the last one was charged."),
    EventMeaning("Suspended", "`spec.suspend` took effect."),
    EventMeaning("Resumed", "The job is queued again."),
    EventMeaning("Completed", "All workers exited 0."),
    EventMeaning("Failed", "The job has failed for good.", warning=True),
    EventMeaning(INTERNAL_ERROR, _DEFECT, warning=True),
)
"""On a TrainingJob."""

SERVICE_EVENTS: Final = (
    EventMeaning(ServiceEvent.ACCEPTED, "The service is looked after for the first time."),
    EventMeaning(ServiceEvent.REJECTED, "Condition Accepted became False; the note says why.", warning=True),
    EventMeaning(ServiceEvent.SCALED_UP, "More replicas are asked for."),
    EventMeaning(ServiceEvent.SCALED_DOWN, "Fewer replicas are asked for."),
    EventMeaning(ServiceEvent.IDLED, "To zero: `scaleToZero.idleAfter` passed without demand."),
    EventMeaning(ServiceEvent.WOKEN, "From zero, for what waits."),
    EventMeaning(ServiceEvent.SCALE_IGNORED, "`spec.replicas` was written outside mode Manual, where it is not read.", warning=True),
    EventMeaning(ServiceEvent.REPLICAS_HELD, "The mode became Manual, and what was there stays until `spec.replicas` is set.", warning=True),
    EventMeaning(ServiceEvent.SCALE_CONTESTED, "Condition ScaleContested; once as long as it lasts.", warning=True),
    EventMeaning(ServiceEvent.CHILD_CHANGED, "Somebody has changed a field that Berth states of a child, and it is put right; once an hour.", warning=True),
    EventMeaning(ServiceEvent.CAPACITY_LIMITED, "CapacityAvailable is False; once as long as it lasts.", warning=True),
    EventMeaning(ServiceEvent.METRICS_LOST, "Demand is unknown; once as long as it lasts.", warning=True),
    EventMeaning(ServiceEvent.METRICS_BACK, "Demand is known again."),
    EventMeaning(ServiceEvent.SPOT_RECLAIMED, "A notice takes spot replicas; replacements start first.", warning=True),
    EventMeaning(ServiceEvent.NODE_LEAVING, "The same of nodes that are not spot: a drain, an autoscaler.", warning=True),
    EventMeaning(ServiceEvent.FELL_BACK_TO_ON_DEMAND, "Work that was on spot is planned on demand; once in 10 minutes.", warning=True),
    EventMeaning(ServiceEvent.RETURNED_TO_SPOT, "No more is on demand than before the fall; once in 10 minutes."),
    EventMeaning(ServiceEvent.ROLLOUT_PAUSED, "A new template does not get ready; the old replicas serve on.", warning=True),
    EventMeaning(ServiceEvent.ROLLOUT_YIELDED, "With `rollout.maxUnavailable: 0` no successor has found room for ten minutes; one replica at a time goes first.", warning=True),
)
"""On an InferenceService."""
# fmt: on

CONDITIONS: Final = {
    names.TRAINING_JOB.kind: JOB_CONDITIONS,
    names.INFERENCE_SERVICE.kind: SERVICE_CONDITIONS,
    names.ACCELERATOR_POOL.kind: POOL_CONDITIONS,
}
EVENTS: Final[dict[str, tuple[EventMeaning, ...]]] = {
    names.TRAINING_JOB.kind: JOB_EVENTS,
    names.INFERENCE_SERVICE.kind: SERVICE_EVENTS,
    names.ACCELERATOR_POOL.kind: (),
}
