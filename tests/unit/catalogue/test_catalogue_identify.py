"""Which product a node carries, by the labels that the real world writes."""

from __future__ import annotations

import pytest

from berth.catalogue.load import load

CATALOGUE = load()
GFD, GKE, AWS, TPU = (
    "nvidia.com/gpu.product",
    "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "cloud.google.com/gke-tpu-accelerator",
)
AMD, TYPE, NEURON = (
    "amd.com/gpu.product-name",
    "node.kubernetes.io/instance-type",
    "karpenter.k8s.aws/instance-accelerator-name",
)


def expect_product(labels: dict[str, str], name: str | None) -> None:
    found = CATALOGUE.identify({"kubernetes.io/os": "linux", **labels})
    assert (found and found.name) == name


@pytest.mark.parametrize(
    ("label", "value", "name"),
    [
        (GFD, "NVIDIA-H100-80GB-HBM3", "H100"),
        (GFD, "NVIDIA-H100-PCIe", "H100-PCIe"),
        (GFD, "NVIDIA-H100-NVL", "H100-NVL"),
        (GFD, "NVIDIA-H200", "H200"),
        (GFD, "NVIDIA-H200-NVL", "H200-NVL"),
        (GFD, "NVIDIA-GB200", "GB200"),
        (GFD, "NVIDIA-A100-SXM4-80GB", "A100"),
        (GFD, "NVIDIA-A100-SXM4-40GB", "A100-40GB"),
        (GFD, "A100-SXM4-40GB", "A100-40GB"),
        (GFD, "NVIDIA-A100-PCIE-40GB", "A100-40GB"),
        (GFD, "NVIDIA-A100-80GB-PCIe", "A100-PCIe"),
        (GFD, "NVIDIA-L40S", "L40S"),
        (GFD, "NVIDIA-L40", None),
        (GFD, "NVIDIA-L4", "L4"),
        (GFD, "Tesla-T4", None),
        (AMD, "AMD_Instinct_MI300X_OAM", "MI300X"),
        ("beta.amd.com/gpu.product-name", "AMD_Instinct_MI210", "MI210"),
        ("amd.com/gpu.device-id", "74a1", "MI300X"),
        ("habana.ai/product.name", "Intel-Gaudi-2-96GB", "Gaudi2"),
        (GKE, "nvidia-h100-80gb", "H100"),
        (GKE, "nvidia-h100-mega-80gb", "H100"),
        (GKE, "nvidia-h200-141gb", "H200"),
        (GKE, "nvidia-tesla-a100", "A100-40GB"),
        (GKE, "nvidia-a100-80gb", "A100"),
        (GKE, "nvidia-l4", "L4"),
        (TPU, "tpu-v4-podslice", "TPU-v4"),
        (TPU, "tpu-v5-lite-podslice", "TPU-v5e"),
        (TPU, "tpu-v6e-slice", "TPU-v6e"),
        (AWS, "h100", "H100"),
        (AWS, "h200", "H200"),
        (AWS, "l40s", "L40S"),
        (NEURON, "inferentia", "Inferentia"),
        (NEURON, "inferentia2", "Inferentia2"),
        (TYPE, "inf2.48xlarge", "Inferentia2"),
        (TYPE, "p5en.48xlarge", "H200"),
        (TYPE, "Standard_ND96isr_H100_v5", "H100"),
        (TYPE, "Standard_ND96isr_MI300X_v5", "MI300X"),
        (TYPE, "Standard_NC40ads_H100_v5", "H100-NVL"),
        (TYPE, "gx3d-160x1792x8gaudi3", "Gaudi3"),
        (TYPE, "m7i.large", None),
    ],
)
def test_one_label_names_the_product(label, value, name):
    expect_product({label: value}, name)


def test_a_shared_device_is_named_like_a_whole_one():
    expect_product({GFD: "NVIDIA-L40S-SHARED"}, "L40S")


def test_the_exact_label_wins_over_the_vague_one():
    expect_product({AWS: "h100", GFD: "NVIDIA-H100-NVL"}, "H100-NVL")


def test_memory_tells_two_products_of_one_name_apart():
    memory = "karpenter.k8s.aws/instance-gpu-memory"
    expect_product({AWS: "a100", memory: "40960"}, "A100-40GB")
    expect_product({AWS: "a100", memory: "81920"}, "A100")
    expect_product({AWS: "a100"}, None)


def test_a_node_without_such_labels_has_no_accelerator():
    expect_product({}, None)


def test_an_overlay_teaches_a_new_value():
    text = "accelerators: {H200: {products: {nvidia.com/gpu.product: [NVIDIA-H200-141GB-HBM3e]}}}"
    found = load([("site.yaml", text)]).identify({GFD: "NVIDIA-H200-141GB-HBM3e"})
    assert found is not None
    assert found.name == "H200"
