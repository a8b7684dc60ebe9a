"""The networks of the workload resnet50 have the published sizes, and learn."""

from pathlib import Path

import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, run_keras

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


def test_families_learn_from_photos():
    sklearn = pytest.importorskip("sklearn")
    photos = Path(sklearn.__file__).parent / "datasets" / "images"
    families = ["resnet50", "inception_v3", "alexnet"]  # MobileNet learns in test_images_page
    losses = run_keras(2, PROGRAM, "learn", photos, *families, timeout=900).results()[0]
    assert list(losses) == families
    worse = {arch: pair for arch, pair in losses.items() if not pair[1] < pair[0]}
    assert not worse, losses
