"""The networks of the workload resnet50 have the published sizes, and learn."""

import tomllib
from pathlib import Path

import pytest

from tests.mpi.ranks import PROGRAMS, ROOT, needs_mpi, run_keras

pytestmark = [pytest.mark.mpi, pytest.mark.thorough, needs_mpi]

PROGRAM = PROGRAMS / "architectures.py"


def test_parameter_counts_are_those_published():
    # Those of https://keras.io/api/applications/, to the last parameter; AlexNet's without its split over two GPUs.
    assert run_keras(1, PROGRAM, "count").results()[0] == {
        "resnet50": 25_636_712, "resnet101": 44_707_176, "resnet152": 60_419_944,
        "inception_v3": 23_851_784, "alexnet": 62_378_344, "vgg16": 138_357_544, "vgg19": 143_667_240,
        "mobilenet": 4_253_864, "mobilenet-v2": 3_538_984,
        "mobilenet-v3-small": 2_554_968, "mobilenet-v3-large": 5_507_432,
        "efficientnetv2-b0": 7_200_312, "efficientnetv2-b1": 8_212_124,
        "efficientnetv2-b2": 10_178_374, "efficientnetv2-b3": 14_467_622,
    }  # fmt: skip


GROUPS = (
    ["alexnet", "vgg16", "vgg19", "mobilenet", "mobilenet-v2", "mobilenet-v3-small", "mobilenet-v3-large"],
    ["resnet50", "inception_v3"],
    ["resnet101"],
    ["resnet152"],
    *(["efficientnetv2-b0"], ["efficientnetv2-b1"], ["efficientnetv2-b2"], ["efficientnetv2-b3"]),
)


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group[0])
def test_one_rank_and_two_learn_alike_from_photos(group):
    """A few steps with the same global batch lower the cross-entropy, and begin with equal losses."""
    sklearn = pytest.importorskip("sklearn")
    photos = Path(sklearn.__file__).parent / "datasets" / "images"
    one, two = (run_keras(ranks, PROGRAM, "learn", photos, *group, timeout=600).results()[0] for ranks in (1, 2))
    for arch in group:
        if arch.startswith("mobilenet"):  # in float64
            steps, tolerance = 3, 1e-8
        elif arch.startswith(("alexnet", "vgg")):  # without batch normalization
            steps, tolerance = 6, 1e-4
        else:
            steps, tolerance = 1, 1e-4
        assert two[arch]["loss"][:steps] == pytest.approx(one[arch]["loss"][:steps], rel=tolerance), arch
        for history in (one[arch]["without decay"], two[arch]["without decay"]):
            assert min(history[-2:]) < history[0], (arch, history)


def test_the_groups_have_all_architectures():
    workload = tomllib.loads((ROOT / "workloads/resnet50/workload.toml").read_text())
    assert sorted(arch for group in GROUPS for arch in group) == sorted(workload["options"]["arch"]["choices"])
