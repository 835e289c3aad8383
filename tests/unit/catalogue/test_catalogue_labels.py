"""What the label table makes of nodes of the clouds."""

from __future__ import annotations

import pytest

from berth.catalogue.load import load
from berth.catalogue.records import FabricFacts

CATALOGUE = load()
TABLE = CATALOGUE.labels
ZONE, REGION, TYPE = "topology.kubernetes.io/zone", "topology.kubernetes.io/region", "node.kubernetes.io/instance-type"


def names(*labels: str) -> list[str]:
    return [level.name for level in TABLE.levels(labels)]


@pytest.mark.parametrize(
    ("labels", "levels"),
    [
        ((), ["host"]),
        ((ZONE,), ["zone", "host"]),
        (("topology.berth.dev/block", "topology.berth.dev/rack", ZONE), ["zone", "block", "rack", "host"]),
        ([f"topology.k8s.aws/network-node-layer-{n}" for n in (1, 2, 3)], ["spine", "block", "rack", "host"]),
        ([f"cloud.google.com/gce-topology-{n}" for n in ("subblock", "block")], ["block", "subblock", "host"]),
        ([f"network.topology.nvidia.com/{n}" for n in ("leaf", "spine")], ["spine", "leaf", "host"]),
        ([f"network.topology.nvidia.com/{n}" for n in ("block", "spine", "datacenter")],
         ["datacenter", "spine", "block", "host"]),
        ([f"fabric.topograph.run/tier-{n}" for n in (0, 1, 2)], ["core", "spine", "leaf", "host"]),
        ([f"oci.oraclecloud.com/rdma.{n}_block_id" for n in ("local", "network")], ["block", "rack", "host"]),
        ([f"cloud.provider.com/topology-{n}" for n in ("rack", "block")], ["block", "rack", "host"]),
        (("kubernetes.azure.com/agentpool", REGION), ["region", "scaleset", "host"]),
        (("topology.berth.dev/rack", "nvidia.com/gpu.clique"), ["rack", "nvlink", "host"]),
    ],
)  # fmt: skip
def test_levels_come_from_the_labels_that_occur(labels, levels):
    assert names(*labels) == levels


def test_our_own_labels_win_over_the_clouds():
    found = TABLE.levels(["topology.k8s.aws/network-node-layer-1", "topology.berth.dev/rack"])
    assert [level.label for level in found] == ["topology.berth.dev/rack", "kubernetes.io/hostname"]


def test_the_zone_is_the_site_and_the_clique_the_nvlink_domain():
    roles = {level.name: level.role for level in TABLE.levels([ZONE, REGION, "nvidia.com/gpu.clique"])}
    assert roles == {"zone": "Site", "nvlink": "NVLinkDomain", "host": ""}


def test_a_reservation_that_topograph_calls_a_domain_promises_no_nvlink():
    (domain, _) = TABLE.levels(["accelerator.topograph.run/domain"])
    assert (domain.name, domain.role) == ("domain", "")


@pytest.mark.parametrize(("zone", "site"), [("westeurope-1", ZONE), ("0", REGION), ("12", REGION)])
def test_a_fault_domain_in_the_zone_label_is_no_site(zone, site):
    found = TABLE.levels(TABLE.occurring({ZONE: zone, REGION: "westeurope"}))
    assert [level.label for level in found if level.role == "Site"] == [site]


@pytest.mark.parametrize(
    ("label", "value", "kind"),
    [
        ("karpenter.sh/capacity-type", "spot", "Spot"),
        ("karpenter.sh/capacity-type", "on-demand", "OnDemand"),
        ("karpenter.sh/capacity-type", "reserved", "Reserved"),
        ("eks.amazonaws.com/capacityType", "SPOT", "Spot"),
        ("eks.amazonaws.com/capacityType", "CAPACITY_BLOCK", "Reserved"),
        ("cloud.google.com/gke-spot", "true", "Spot"),
        ("cloud.google.com/gke-provisioning", "standard", "OnDemand"),
        ("cloud.google.com/reservation-name", "team-a", "Reserved"),
        ("kubernetes.azure.com/scalesetpriority", "spot", "Spot"),
        ("machine.openshift.io/interruptible-instance", "", "Spot"),
        ("karpenter.sh/capacity-type", "borrowed", None),
        ("example.com/other", "spot", None),
    ],
)
def test_capacity_type(label, value, kind):
    assert TABLE.capacity_type({label: value}) == kind


@pytest.mark.parametrize(
    ("label", "value", "kind"),
    [
        ("karpenter.sh/capacity-type", "spot", "Spot"),
        ("example.com/paid-as", "Spot", "Spot"),
        ("example.com/paid-as", "ON_DEMAND", "OnDemand"),
        ("example.com/paid-as", "barter", None),
        ("example.com/absent", None, None),
    ],
)
def test_a_label_that_a_pool_names_is_read_by_its_own_table_or_the_usual_words(label, value, kind):
    assert TABLE.capacity_type_by(label, {} if value is None else {label: value}) == kind


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ({"nvidia.com/gpu.replicas": "4"}, "time slicing (nvidia.com/gpu.replicas=4)"),
        ({"nvidia.com/gpu.replicas": "1", "nvidia.com/gpu.sharing-strategy": "none"}, None),
        ({"nvidia.com/gpu.sharing-strategy": "time-slicing"},
         "time slicing (nvidia.com/gpu.sharing-strategy=time-slicing)"),
        ({"nvidia.com/gpu.sharing-strategy": "mps"}, "MPS sharing (nvidia.com/gpu.sharing-strategy=mps)"),
        ({"nvidia.com/mps.capable": "true"}, "MPS sharing (nvidia.com/mps.capable=true)"),
        ({"nvidia.com/gpu.product": "NVIDIA-L4-SHARED"}, "shared devices (nvidia.com/gpu.product=NVIDIA-L4-SHARED)"),
        (
            {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"},
            "MIG partitions (nvidia.com/gpu.product=NVIDIA-A100-SXM4-40GB-MIG-1g.5gb)",
        ),
        ({"nvidia.com/mig.strategy": "single", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, None),
        ({"cloud.google.com/gke-max-shared-clients-per-gpu": "8"},
         "shared devices (cloud.google.com/gke-max-shared-clients-per-gpu=8)"),
        ({"amd.com/compute-memory-partition": "cpx_nps4"}, "partitions (amd.com/compute-memory-partition=cpx_nps4)"),
        ({"amd.com/compute-memory-partition": "spx_nps1"}, None),
        ({TYPE: "g6f.xlarge"}, "fractions of a device (node.kubernetes.io/instance-type=g6f.xlarge)"),
    ],
)  # fmt: skip
def test_sharing_is_named_with_the_label_that_shows_it(labels, reason):
    assert TABLE.sharing(labels) == reason


@pytest.mark.parametrize(
    ("labels", "resources", "facts"),
    [
        ({"fabric.berth.dev/kind": "InfiniBand", "fabric.berth.dev/gbps": "400", "fabric.berth.dev/rails": "8"}, {},
         FabricFacts("InfiniBand", 400, 8)),
        ({"fabric.berth.dev/kind": "RoCE", "fabric.berth.dev/gbps": "fast"}, {}, FabricFacts("RoCE")),
        ({TYPE: "p5.48xlarge"}, {"vpc.amazonaws.com/efa": 32}, FabricFacts("EFA", 100, 32)),
        ({TYPE: "p5.48xlarge"}, {}, None),
        ({TYPE: "Standard_ND96isr_H200_v5"}, {}, FabricFacts("InfiniBand", 400, 8)),
        ({TYPE: "a3-ultragpu-8g"}, {}, FabricFacts("RoCE", 400, 8)),
        ({}, {"rdma/ib": 8}, FabricFacts("InfiniBand")),
        ({}, {"rdma/ib": 0}, None),
        ({"feature.node.kubernetes.io/pci-0207_15b3.present": "true"}, {}, FabricFacts("InfiniBand")),
        ({"feature.node.kubernetes.io/rdma.capable": "true"}, {}, None),
    ],
)  # fmt: skip
def test_the_fabric_is_what_labels_and_devices_tell(labels, resources, facts):
    assert TABLE.fabric(labels, resources) == facts


@pytest.mark.parametrize(
    ("fabric", "rails", "offered", "request_"),
    [
        ("InfiniBand", 4, {"rdma/ib"}, {"rdma/ib": 4}),
        ("InfiniBand", 8, {"rdma/hca"}, {"rdma/hca": 1}),
        ("InfiniBand", 8, {"rdma/hca", "rdma/ib"}, {"rdma/ib": 8}),
        ("RoCE", 2, {f"networking.gke.io.networks/rdma-{n}" for n in range(8)},
         {"networking.gke.io.networks/rdma-0": 1, "networking.gke.io.networks/rdma-1": 1}),
        ("RoCE", 4, {"networking.gke.io.networks/rdma-0"}, {}),
        ("EFA", 32, {"vpc.amazonaws.com/efa"}, {"vpc.amazonaws.com/efa": 32}),
        ("InfiniBand", 4, {"nvidia.com/gpu"}, {}),
        ("InfiniBand", 0, {"rdma/ib"}, {}),
        ("Ethernet", 1, {"rdma/ib"}, {}),
    ],
)  # fmt: skip
def test_a_pod_asks_for_one_device_a_rail_by_the_name_its_node_has(fabric, rails, offered, request_):
    assert CATALOGUE.fabrics[fabric].request(rails, offered) == request_


@pytest.mark.parametrize(
    ("where", "store"),
    [
        ({"scheme": "s3"}, "S3"),
        ({"scheme": "gs"}, "GCS"),
        ({"scheme": "pvc", "driver": "fsx.csi.aws.com"}, "Lustre"),
        ({"scheme": "pvc", "driver": "example.com/unknown"}, None),
    ],
)
def test_a_store_is_found_by_its_driver_or_scheme(where, store):
    found = CATALOGUE.storage_of(**where)
    assert (found and found.name) == store


def test_bandwidth_grows_with_the_nodes_up_to_what_the_store_sustains():
    bucket, lustre = CATALOGUE.storage["S3"], CATALOGUE.storage["Lustre"]
    assert [bucket.write_bandwidth(nodes) for nodes in (1, 4)] == [4_700_000_000, 18_800_000_000]
    assert lustre.write_bandwidth(64) == 100 * 10**9
    assert CATALOGUE.storage["HDD"].write_bandwidth(4) is None
