"""Workloads whose data are certainly missing are refused before they are submitted."""

import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from hpcrun.data.small_sets import find_cifar10
from hpcrun.errors import HpcrunError
from hpcrun.workload_data import is_certainly_missing

NONE_SET = "resnet50 has no data: neither --data-dir nor $HPCRUN_DATA_IMAGENET is set"


@pytest.fixture
def submit(cli, fake_slurm, tmp_path, monkeypatch):
    """Return a function that submits a workload to a site, and returns the exit code and the errors."""
    monkeypatch.setenv("HPCRUN_SITE_PATH", str(tmp_path))
    monkeypatch.delenv("HPCRUN_DATA_IMAGENET", raising=False)
    (fake_slurm.folder / "id").write_text("1")

    def call(*argv, site=""):
        (tmp_path / "c.toml").write_text(f'extends = "slurm"\n{site}')
        code, _, err = cli("submit", "--site", "c", "--no-gpu", *argv)
        return code, err, bool(fake_slurm.calls("sbatch"))

    return call


def test_workload_without_its_data_is_refused(submit):
    code, err, submitted = submit("resnet50")
    assert (code, submitted) == (2, False)
    assert f"ERROR: {NONE_SET}\nHINT: hpcrun submit resnet50 -- --data-dir=FOLDER, or " in err


def test_dry_run_only_warns(submit):
    code, err, _ = submit("resnet50", "--dry-run")
    assert (code, f"WARNING: {NONE_SET}: without it, no job is submitted here\n" in err) == (0, True)


@pytest.mark.parametrize(("argv", "site"), [
    (["--", "--synthetic-data"], ""),
    ([], '[modules]\nload = ["imagenet"]\n'),  # a module may set the variable
    ([], 'setup = ["export HPCRUN_DATA_IMAGENET=$(find_imagenet)"]\n'),
    ([], '[data]\nimagenet = "/nowhere/on/this/host"\n'),
    (["-x", "HPCRUN_DATA_IMAGENET=/nowhere/on/this/host"], ""),
    (["--", "--data-dir", "/nowhere/on/this/host"], ""),
    (["--", "--data-dir", "/dev/shm/imagenet"], ""),  # nodes have another one
    (["--", "--data-dir", "{}/records"], ""),
])  # fmt: skip
def test_data_that_nodes_may_have_are_not_refused(submit, isolated_home, argv, site):
    for split in ("train", "validation"):
        (isolated_home / "records" / split).mkdir(parents=True)
    argv = [word.format(isolated_home) for word in argv]
    code, err, submitted = submit("resnet50", *argv, site=site)
    assert (code, submitted) == (0, True), err


@pytest.mark.parametrize(("argv", "site", "source"), [
    (["--", "--data-dir", "{}/imagenet"], "", "--data-dir"),
    ([], '[data]\nimagenet = "{}/imagenet"\n', "$HPCRUN_DATA_IMAGENET"),
    (["--sweep", "data-dir={}/records,{}/imagenet"], "", "--data-dir"),
])  # fmt: skip
def test_folder_that_a_shared_file_system_lacks_is_refused(submit, isolated_home, argv, site, source):
    for split in ("train", "validation"):
        (isolated_home / "records" / split).mkdir(parents=True)
    argv = [word.format(isolated_home, isolated_home) for word in argv]
    code, err, submitted = submit("resnet50", *argv, site=site.format(isolated_home))
    assert (code, submitted) == (2, False)
    assert f"ERROR: resnet50: {source}={isolated_home}/imagenet: there is no such folder\n" in err


def test_an_empty_folder_is_refused_unless_an_earlier_job_may_fill_it(submit, isolated_home):
    folder = isolated_home / "photos"
    folder.mkdir()
    line = ["--", "--data-dir", str(folder)]
    code, err, submitted = submit("resnet50", "--dependency", "afterok:7", *line)
    assert (code, submitted) == (0, True), err
    code, err, _ = submit("resnet50", *line)
    assert (code, f"ERROR: resnet50: --data-dir={folder}: the folder is empty\n" in err) == (2, True)


def test_a_folder_of_images_that_is_not_a_data_set_is_refused(submit, isolated_home):
    (isolated_home / "photos/cat").mkdir(parents=True)
    code, err, submitted = submit("resnet50", "--", "--data-dir", str(isolated_home / "photos"))
    assert (code, submitted) == (2, False)
    assert "photos: the folder has none of train-*-of-* + validation-*-of-*, train + val*, train + test\n" in err
    assert f"HINT: hpcrun data build {isolated_home}/photos RECORDS --validation 0.1 makes shards" in err
    (isolated_home / "photos/train").mkdir()
    assert submit("resnet50", "--", "--data-dir", str(isolated_home / "photos"))[0] == 2
    (isolated_home / "photos/val").mkdir()
    assert submit("resnet50", "--", "--data-dir", str(isolated_home / "photos"))[0] == 0


@pytest.mark.parametrize("name", ["mnist.npz", "t10k-images-idx3-ubyte.gz", "cifar-10-batches-py/data_batch_1"])
def test_original_files_of_small_data_sets_are_evaluated(submit, isolated_home, name):
    (isolated_home / "m.keras").write_bytes(b"PK\3\4")
    (isolated_home / "sets" / name).parent.mkdir(parents=True)
    (isolated_home / "sets" / name).touch()
    line = ["evaluate", "--", "--model", f"{isolated_home}/m.keras", "--data-dir", f"{isolated_home}/sets"]
    code, err, submitted = submit(*line)
    assert (code, submitted) == (0, True), err


@pytest.mark.parametrize(("argv", "reason"), [
    (["resnet50", "--", "--data-dir", "{}/file"], "a file, not a folder"),
    (["cifarnet", "--", "--data-dir", "{}/other"], "the folder has none of cifar-10-*, "),
    (["cifarnet", "--", "--data-dir", "{}/half"], "the folder has none of cifar-10-*, "),
    (["lenet5", "--", "--data-dir", "{}/other"], "the folder has none of mnist.npz, train-*-of-* + validation-*-of-*"),
    (["lenet5", "--", "--dataset=shards", "--data-dir", "{}/half"], "the folder has none of mnist.npz, "),
    (["evaluate", "--", "--model", "{}/m.keras", "--data-dir", "{}/half"], "none of validation-*-of-*, validation, "),
])  # fmt: skip
def test_data_of_another_kind_are_refused(submit, isolated_home, argv, reason):
    (isolated_home / "file").touch()
    (isolated_home / "m.keras").write_bytes(b"PK\3\4")
    for name in ("other/readme", "half/train-00000-of-00001"):
        (isolated_home / name).parent.mkdir()
        (isolated_home / name).touch()
    code, err, submitted = submit(*(word.format(isolated_home) for word in argv))
    assert (code, submitted, reason in err) == (2, False, True), err


@pytest.mark.parametrize("argv", [
    ["cifarnet", "--", "--data-dir", "{}/cifar"],
    ["cifarnet", "--", "--data-dir", "{}/cifar/mine"],
    ["cifarnet", "--", "--data-dir", "{}"],
    ["cifarnet", "--", "--data-dir", "{}/imagenet"],  # has too many subfolders to search
    ["lenet5", "--", "--data-dir", "{}/cifar", "--dataset=digits"],
    ["evaluate", "--", "--model", "{}/m.keras", "--data-dir", "{}/half", "--split=train"],
])  # fmt: skip
def test_data_of_all_kinds_that_a_workload_reads_are_accepted(submit, isolated_home, argv):
    (isolated_home / "m.keras").write_bytes(b"PK\3\4")
    for name in ("cifar/mine/data_batch_1.bin", "half/train-00000-of-00001"):
        (isolated_home / name).parent.mkdir(parents=True)
        (isolated_home / name).touch()
    for number in range(60):
        (isolated_home / f"imagenet/n{number}").mkdir(parents=True)
    code, err, submitted = submit(*(word.format(isolated_home) for word in argv))
    assert (code, submitted) == (0, True), err


@pytest.mark.parametrize(("depth", "is_found"), [(0, True), (1, True), (2, True), (3, False)])
def test_batches_of_cifar10_are_found_before_the_queue_where_they_are_found_in_the_job(
    submit, isolated_home, depth, is_found
):
    data = isolated_home / "data"
    folder = data.joinpath(*"abc"[:depth])
    folder.mkdir(parents=True)
    for name in ("data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin",
                 "test_batch.bin"):  # fmt: skip
        (folder / name).write_bytes(bytes(3073 * 2))
    code, err, submitted = submit("cifarnet", "--", "--data-dir", str(data))
    assert (code, submitted) == ((0, True) if is_found else (2, False)), err
    with nullcontext() if is_found else pytest.raises(HpcrunError, match="CIFAR-10 is not in"):
        assert find_cifar10(data).splits["train"]


def test_subfolders_that_cannot_be_listed_are_skipped(submit, isolated_home):
    (isolated_home / "data/closed").mkdir(parents=True)
    (isolated_home / "data/loop").symlink_to("loop")
    (isolated_home / "data/closed").chmod(0)
    code, err, _ = submit("cifarnet", "--", "--data-dir", f"{isolated_home}/data")
    assert (code, "data: the folder has none of cifar-10-*, " in err) == (2, True), err


@pytest.mark.parametrize("flag", ["--follow", "--best"])
def test_only_a_job_has_several_models(submit, isolated_home, flag):
    (isolated_home / "m.keras").write_bytes(b"PK\3\4")
    argv = ("--model", f"{isolated_home}/m.keras", "--data-dir", "/nowhere/on/this/host")
    code, err, submitted = submit("evaluate", "--", *argv, flag)
    assert (code, submitted, f"evaluate: {flag} needs a job, and --run is a model\n" in err) == (2, False, True), err
    assert submit("evaluate", "--", *argv)[0] == 0


def test_job_on_this_host_needs_its_folder_here(cli):
    code, _, err = cli("submit", "--site", "local", "--no-gpu", "lenet5", "--", "--data-dir", "/nowhere/on/this/host")
    assert (code, "ERROR: lenet5: --data-dir=/nowhere/on/this/host: there is no such folder" in err) == (2, True)


MNIST = "--dataset=mnist needs {}/mnist.npz, which does not exist\nHINT: hpcrun submit lenet5 -- --dataset=mnist "


def test_a_file_that_an_option_needs_is_refused_where_it_is_missing(submit, isolated_home, monkeypatch):
    monkeypatch.setenv("HOME", str(isolated_home))
    monkeypatch.delenv("KERAS_HOME", raising=False)
    folder = isolated_home / ".keras/datasets"
    code, err, submitted = submit("lenet5", "--", "--dataset", "mnist")
    assert (code, submitted, MNIST.format(folder) in err) == (2, False, True)
    assert submit("lenet5")[0] == submit("lenet5", "--", "--dataset=digits")[0] == 0
    folder.mkdir(parents=True)
    (folder / "mnist.npz").touch()
    assert submit("lenet5", "--", "--dataset", "mnist")[0] == 0
    monkeypatch.setenv("KERAS_HOME", str(isolated_home))
    code, err, _ = submit("lenet5", "--", "--dataset", "mnist")
    assert (code, MNIST.format(isolated_home / "datasets") in err) == (2, True)
    (isolated_home / "empty").mkdir()
    code, err, _ = submit("lenet5", "--sweep", "dataset=digits,mnist", "--", "--data-dir", str(isolated_home / "empty"))
    assert (code, MNIST.format(isolated_home / "empty") in err) == (2, True)


@pytest.mark.parametrize(("argv", "keras_home"), [
    (["--data-dir", "/dev/shm"], ""),  # nodes have another one
    ([], "/nowhere/on/this/host"),
    ([], "${NOT_SET}/keras"),
])  # fmt: skip
def test_a_file_that_nodes_may_have_is_not_refused(submit, monkeypatch, argv, keras_home):
    if keras_home:
        monkeypatch.setenv("KERAS_HOME", keras_home)
    code, err, submitted = submit("lenet5", "--", "--dataset", "mnist", *argv)
    assert (code, submitted) == (0, True), err


@pytest.fixture
def folder(tmp_path):
    """Return a function that writes a workload folder with an option data_dir, and returns its path."""

    def write(data):
        path = tmp_path / "net"
        path.mkdir(exist_ok=True)
        (path / "train.py").touch()
        (path / "workload.toml").write_text(f'[data]\n{data}\n[options.data_dir]\ntype = "str"\n')
        return str(path)

    return write


def test_an_option_may_have_an_underscore(submit, folder, isolated_home):
    path = folder('option = "data_dir"\nrequired = true')
    assert "ERROR: net has no data: --data_dir is not set\n" in submit(path)[1]
    assert submit(path, "--", "--data_dir=/usr")[0] == 0
    code, err, _ = submit(path, "--", f"--data_dir={isolated_home}/none")
    assert (code, "there is no such folder" in err) == (2, True)


@pytest.mark.parametrize(("data", "message"), [
    ('option = "data"', "data.option = 'data' names none of its options: data_dir"),
    ('option = "data_dir"\nunless = "fake"', "data.unless = 'fake' names none of its options"),
    ('option = "data_dir"\nfile = "x"\nfile_for = "set=y"', "data.file_for = 'set' names none of its options"),
    ('option = "data_dir"\nfile = "x"', "data.file needs data.file_for"),
    ('option = "data_dir"\nfile = "x"\nfile_for = "data_dir"', "data.file needs data.file_for"),
    ('option = "data_dir"\nlayouts = ["{split}-*"]', "{split} in data.layouts names none of its options: data_dir"),
    ('option = "data_dir"\ndefaults = "~/x"', 'data.defaults: "~/x" is not a list (write ["~/x"])'),
])  # fmt: skip
def test_a_table_of_data_that_names_no_option_is_refused(submit, folder, data, message):
    code, err, submitted = submit(folder(data))
    assert (code, submitted, message in err) == (2, False, True), err


def test_a_folder_that_only_nodes_may_read_is_not_missing(tmp_path):
    (tmp_path / "closed").mkdir(mode=0)
    user = os.geteuid()
    os.seteuid(user or 65534)  # root can look everywhere
    try:
        missing = is_certainly_missing(tmp_path / "closed/imagenet", None)
    finally:
        os.seteuid(user)
    assert not missing
    assert is_certainly_missing(tmp_path / "imagenet", None)


def test_a_name_that_is_too_long_is_missing(submit, isolated_home):
    code, err, _ = submit("resnet50", "--", f"--data-dir={isolated_home}/{'x' * 300}")
    assert (code, "there is no such folder" in err) == (2, True)


def test_a_text_may_be_a_file_or_a_folder(submit, isolated_home):
    code, err, submitted = submit("transformer", "--", f"--text={isolated_home}/bok.txt")
    assert (code, submitted) == (2, False)
    assert f"ERROR: transformer: --text={isolated_home}/bok.txt: there is no such file or folder\n" in err
    assert "HINT: hpcrun submit transformer -- --text=FILE\n" in err
    (isolated_home / "books").mkdir()
    (isolated_home / "book.txt").touch()
    for name, reason in (("books", "the folder is empty"), ("book.txt", "the file is empty")):
        code, err, submitted = submit("transformer", "--", f"--text={isolated_home}/{name}")
        assert (code, submitted, f"--text={isolated_home}/{name}: {reason}\n" in err) == (2, False, True)
    (isolated_home / "books/1.txt").write_text("text")
    (isolated_home / "book.txt").write_text("text")
    for name in ("books", "book.txt"):
        assert submit("transformer", "--", f"--text={isolated_home}/{name}")[0] == 0
    code, err, _ = submit("transformer", "--", f"--text={isolated_home}/book.txt/part")
    assert (code, "book.txt/part: there is no such file or folder\n" in err) == (2, True), err
    assert submit("transformer", "--", "--text=/proc/version/part")[0] == 0  # nodes have another one


def test_a_flag_with_a_value_says_that_no_data_are_needed(submit, folder):
    path = folder('option = "data_dir"\nrequired = true\nunless = "fake=true"')
    with Path(path, "workload.toml").open("a") as file:
        file.write("[options.fake]\ndefault = false\n")
    code, err, _ = submit(path)
    hint = f"HINT: hpcrun submit {path} -- --data_dir=FOLDER, or hpcrun submit {path} -- --fake\n"
    assert (code, hint in err) == (2, True)
    assert submit(path, "--", "--fake")[0] == 0
