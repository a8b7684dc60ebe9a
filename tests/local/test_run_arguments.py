"""Options of workloads that name runs, and the commands that use saved models, without starting Keras."""

import json

import pytest

from tests.photos import write_photos


@pytest.fixture
def trained(cli, tmp_path, monkeypatch):
    """Return the directory of a run named net, which ended; the current directory has a model file, m.keras."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.keras").write_bytes(b"PK\3\4")
    (tmp_path / "text.keras").write_text("PyTorch")
    (tmp_path / "text.txt").write_text("text")
    (tmp_path / "net.weights.h5").write_bytes(b"\x89HDF")
    for name in ("records", "net"):  # a folder that has the name of the run
        (tmp_path / name).mkdir()
    code, out, err = cli("submit", "--site", "local", "-J", "net", "--wait", "--json", "--", "true")
    assert code == 0, err
    return json.loads(out)["run_dir"]


def submitted_arguments(cli, *argv):
    code, out, err = cli("submit", "--site", "slurm", "--dry-run", "--json", *argv)
    assert code == 0, err
    spec = json.loads(out)["spec"]
    return [argv[2:] for argv in (task["argv"] for task in spec["tasks"])] if spec["tasks"] else spec["argv"][2:]


@pytest.mark.parametrize("words", [("--run", "last"), ("--run=net",), ("--model", "net")])
def test_a_run_becomes_its_directory(cli, trained, words):
    given = submitted_arguments(cli, "evaluate", "--", *words, "--data-dir", "records")
    assert given[-2:] == ["--data-dir", "records"]
    assert " ".join(given[:-2]).replace("=", " ").replace("--model", "--run") == f"--run {trained}"


@pytest.mark.parametrize("words", [("--data-dir", "records"), ("--data-dir=./records",)])
def test_evaluate_takes_the_data_of_the_training(cli, trained, tmp_path, words):
    cli("submit", "--site", "local", "-J", "shards", "--wait", "--", "true", *words)
    given = submitted_arguments(cli, "evaluate", "--", "--run", "shards")
    assert given[-1] == f"--data-dir={tmp_path}/records"
    assert submitted_arguments(cli, "evaluate", "--", "--run=shards", "--data-dir=net")[-1] == "--data-dir=net"
    assert len(submitted_arguments(cli, "evaluate", "--", "--run=net")) == 1  # that training names none


@pytest.mark.parametrize(("option", "folder", "expected"), [
    ("--stage-in=records", "{staged}/records", "records"),
    ("--stage-in=records", "{staged}/records/small", "records/small"),
    ("--unpack=records.tar", "{staged}/records", None),
])  # fmt: skip
def test_evaluate_takes_the_data_that_the_training_staged(cli, trained, tmp_path, option, folder, expected):
    (tmp_path / "s.toml").write_text(f'extends = "local"\nlocal_scratch = ["{tmp_path}/disk"]\n')
    (tmp_path / "records.tar").touch()
    argv = ("submit", "--site", "./s.toml", "--no-gpu", "-J", "staged", option, "--", "true", "--data-dir", folder)
    code, _, err = cli(*argv)
    assert code == 0, err
    given = submitted_arguments(cli, "evaluate", "--", "--run=staged")
    assert given[1:] == ([f"--data-dir={tmp_path}/{expected}"] if expected else [])


def test_a_model_file_becomes_its_absolute_path(cli, trained, tmp_path):
    given = submitted_arguments(cli, "evaluate", "--", "--data-dir=records", "--model=m.keras")
    assert given == ["--data-dir=records", f"--run={tmp_path}/m.keras"]


def test_a_sweep_over_runs(cli, trained, tmp_path):
    given = submitted_arguments(cli, "evaluate", "--sweep", "run=net,m.keras", "--", "--data-dir=records")
    assert [words[-1] for words in given] == [f"--run={trained}", f"--run={tmp_path}/m.keras"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--run=lats"], "there is no run 'lats' among your runs"),
        (["--model=none.keras"], "there is no model none.keras"),
        (["--model=text.keras"], "text.keras is not a Keras model"),
        (["--model=text.txt"], "text.txt is not a Keras model"),
        (["--model=net.weights.h5"], "net.weights.h5 has only weights"),
        (["--split=validation"], "the following arguments are required: --run/--model"),
    ],
)
def test_an_unknown_run_is_refused_before_the_queue(cli, trained, words, message):
    code, _, err = cli("submit", "evaluate", "--site", "slurm", "--dry-run", "--", "--data-dir", "records", *words)
    assert code == 2
    assert f"{message}" in err
    assert "HINT: " in err


def test_a_run_directory_stays_the_same(cli, trained):
    cli("submit", "--site", "local", "-J", "net", "--wait", "--", "true")  # a newer run of that name
    assert submitted_arguments(cli, "evaluate", "--", f"--run={trained}", "--data-dir=records")[0] == f"--run={trained}"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("predict", "net", "none.jpg"), "there is no image none.jpg"),
        (("predict", "net", "records"), "records has no files"),
        (("predict", "nte", "m.keras"), "there is no run 'nte' among your runs"),
        (("export", "none.keras"), "there is no model none.keras"),
        (("export", "m.keras", "-o", "records"), "/records exists"),
        (("export", "m.keras", "-o", "none/m"), "there is no folder "),
        (("export", "m.keras", "--format", "onnx", "-o", "m.pb"), "a file of this format ends in .onnx"),
        (("export", "m.keras", "--format", "pb"), "--format=pb"),
        (("export", "m.keras", "-o", "m.onnx"), "m.onnx: a SavedModel is a folder\nHINT: give --format onnx, too"),
    ],
)
def test_mistakes_are_refused_without_starting_keras(cli, trained, argv, message, monkeypatch):
    monkeypatch.setattr("subprocess.Popen", None)
    code, out, err = cli(*argv)
    assert (code, out) == (2, "")
    assert message in err


def test_images_that_cannot_be_read_are_listed(cli, trained, tmp_path, monkeypatch):
    monkeypatch.setattr("subprocess.Popen", None)
    photo = write_photos(tmp_path / "photos", 1) / "china/000.jpg"
    (tmp_path / "half.jpg").write_bytes(photo.read_bytes()[:600])
    code, _, err = cli("predict", "net", "half.jpg", "text.keras")
    assert code == 1
    assert "2 images cannot be read:\nhalf.jpg: damaged image" in err
    assert "text.keras: not an image that Pillow reads" in err
