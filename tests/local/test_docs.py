"""The examples in README and docs work as printed."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from hpcrun import submission
from hpcrun.cli.main import main
from hpcrun.data import build
from hpcrun.data.image_sources import find_images
from hpcrun.jobs import submission_records
from hpcrun.request import Request
from hpcrun.sites import loader
from tests.unit import slurm_clusters

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def code_blocks(language):
    fence = re.compile(rf"^```{language}\n(.*?)^```", re.MULTILINE | re.DOTALL)
    return [
        pytest.param(block, id=f"{page.stem}-{number}")
        for page in PAGES
        for number, block in enumerate(fence.findall(page.read_text()))
    ]


def example_commands():
    for param in code_blocks("console"):
        for line in param.values[0].splitlines():
            for command in line.removeprefix("$ ").split("#")[0].split(";"):
                # tests/mpi/test_images_page.py runs those that need a trained model, unit/test_data.py imagenet
                if line.startswith("$ ") and re.match("hpcrun (?!predict|export|data imagenet)", command.strip()):
                    yield command.strip()


def prepare_environment(argv, tmp_path, monkeypatch, request):
    """Create the files and commands that an example needs."""
    if "./mycluster.toml" in argv:  # the first site file of the page
        monkeypatch.setenv("SCRATCH", str(tmp_path))
        (block,) = [text for text in (param.values[0] for param in code_blocks("toml")) if "# mycluster.toml" in text]
        (tmp_path / "mycluster.toml").write_text(block)
    if argv[1:3] == ["site", "init"]:
        slurm_clusters.RECORDED.install_commands(request.getfixturevalue("fake_slurm"))
    if argv[1] == "cleanup":
        request.getfixturevalue("shared_memory")
    if {"--run", "--fine-tune"} & {*argv}:  # they name a run
        spec = submission.create(
            submission.prepare(Request(None, ("true",), site="local", resources={"job_name": "resnet50"}))
        )
        submission_records.write_submission({spec: "1"})
    if argv[1] == "data":
        prepare_images(tmp_path)
        if argv[2] != "build":
            build.build(find_images(Path("photos")), Path("records"), build.Options({"train": 2}), 1, print)
    if argv[1] == "doctor":  # with a site that needs neither Slurm nor MPI
        (tmp_path / "minimal.toml").write_text('extends = "local"\nlauncher = "none"\n')
        monkeypatch.setenv("HPCRUN_SITE", "./minimal.toml")
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")


def prepare_images(folder):
    for name in ("roses", "tulips"):
        (folder / "photos" / name).mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (8, 8)).save(folder / "photos" / name / f"{number}.png")


@pytest.mark.parametrize("command", list(dict.fromkeys(example_commands())))
def test_commands_in_the_docs_run(command, tmp_path, monkeypatch, capsys, request):
    """Run commands that submit as dry runs; run commands on jobs with an ended job."""
    argv = shlex.split(command)
    (tmp_path / "train.py").write_text("")
    (tmp_path / "hosts").write_text("localhost\n")
    for block in toml_blocks(workloads=True):
        (tmp_path / "mynet").mkdir()
        (tmp_path / "mynet/workload.toml").write_text(block.values[0])
        (tmp_path / "mynet/train.py").write_text("")
    monkeypatch.chdir(tmp_path)

    prepare_environment(argv, tmp_path, monkeypatch, request)

    def call(*argv):
        monkeypatch.setattr(sys, "argv", list(argv))
        with pytest.raises(SystemExit) as completed:
            main()
        return completed.value.code or 0

    if argv[1] in {"submit", "run"}:
        # the examples need several nodes, which the local site does not have
        (tmp_path / "cluster.toml").write_text('extends = "slurm"\nlocal_scratch = ["/local"]\n')
        site = [] if "--site" in argv or argv[1] == "run" else ["--site", "./cluster.toml"]
        code = call("hpcrun", argv[1], *site, "--dry-run", *argv[2:])
    elif argv[1] == "resubmit":  # a job that ran out of memory, or with --state a sweep
        sweep = (("seed", ("1", "2")),) if "--state" in argv else ()
        memory = Request("lenet5", site="slurm", sweep=sweep, resources={"mem": "1G"})
        job = submission.create(submission.prepare(memory))
        (job.directory / "1_0_log.err").write_text("MemoryError\n")
        submission_records.write_submission({job: "1", **{task: f"1_{task.task_number}" for task in job.tasks}})
        failed = {"exit_code": 1, "reason": "failed", "host": "n1", "started": 1, "ended": 2}
        ((job.tasks or [job])[0].directory / "exit.json").write_text(json.dumps(failed))
        code = call("hpcrun", "resubmit", "--dry-run", *argv[2:])
    elif argv[1:3] == ["site", "test"]:
        monkeypatch.setenv("HPCRUN_SITE", "slurm")
        code = call(*argv, "--dry-run")
    else:
        if argv[1] not in {"site", "workload", "config", "doctor", "data"}:
            result = """echo '{"loss": 1}' >"$HPCRUN_RUN_DIR/result.json"; sleep 0.1"""
            if argv[1] == "resume":
                result = "exit 1"
            wait = [] if argv[1] == "cancel" else ["--wait"]
            for _ in range(2 if argv[1] == "compare" else 1):
                call("hpcrun", "submit", "--site", "local", "-J", "lenet5", *wait, "--", "sh", "-c", result)
        code = call(*(word for word in argv if word != "--in-job"))
    output = capsys.readouterr()
    page = "".join(page.read_text() for page in PAGES)
    if expected := re.search(rf"^\$ {re.escape(command)}\n(ERROR.*\nHINT.*\n)", page, re.MULTILINE):
        assert (code, output.err) == (2, expected[1])
    else:
        assert code == (1 if argv[1:3] == ["site", "diff"] else 0), output.err


def toml_blocks(*, workloads):
    return [param for param in code_blocks("toml") if param.values[0].startswith("# workload.toml") == workloads]


@pytest.mark.parametrize("block", toml_blocks(workloads=False))
def test_site_files_in_the_docs_are_valid(block, tmp_path):
    (tmp_path / "mycluster.toml").write_text(block)
    assert loader.load_site(str(tmp_path / "mycluster.toml")).list_values()


def facts_of_a_cluster():
    """Return the lines of a site file in each row of the table of facts."""
    rows = re.findall(r"^\| (.*) \| (.*) \|$", (ROOT / "docs/sites.md").read_text(), re.MULTILINE)
    for fact, keys in rows[rows.index(("the documentation says", "the site file has")) + 2 :]:
        if lines := [code for code in re.findall("`([^`]+)`", keys) if " = " in code or code.startswith("[")]:
            yield pytest.param("\n".join(lines), id=fact[:40])


@pytest.mark.parametrize("lines", list(facts_of_a_cluster()))
def test_the_facts_of_a_cluster_are_keys_of_a_site_file(lines, tmp_path):
    (tmp_path / "mycluster.toml").write_text(f'extends = "slurm"\n{lines}\n')
    assert loader.load_site(str(tmp_path / "mycluster.toml")).list_values()


@pytest.mark.mpi
@pytest.mark.thorough
def test_the_training_example_runs(tmp_path):
    """Run the example without hpcrun; tests/mpi/test_run.py runs it and its continuations on several ranks."""
    example = training_examples()[0]
    (tmp_path / "train.py").write_text(example)
    completed = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert (tmp_path / "model.keras").exists()
    assert "epoch 2/2" in completed.stdout
    assert completed.stderr == ""


def test_the_diff_in_the_docs_matches_the_training_example():
    (change,) = code_blocks("diff")
    lines = iter(training_examples()[0].splitlines())
    assert all(line[1:] in lines for line in change.values[0].splitlines())  # in the same order
    assert sum(line.startswith("+") and len(line) > 1 for line in change.values[0].splitlines()) == 3


def training_examples():
    return [param.values[0] for param in code_blocks("python") if param.id.startswith("training-")]


def test_links_in_the_docs_point_to_files():
    for page in PAGES:
        for link in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_table_of_public_scripts_has_those_that_run_on_slurm():
    rows = re.findall(r"\| `(\w+\.py)` \| srun", (ROOT / "docs/frameworks.md").read_text())
    scripts = {file.name for file in (ROOT / "tests/slurm/frameworks").glob("*.py")}
    assert set(rows) == scripts
    test = (ROOT / "tests/slurm/test_frameworks.py").read_text()
    assert all(f'"{name}"' in test for name in scripts)


def test_no_file_suggests_installing_pypis_hpcrun():
    """PyPI's hpcrun is another project."""
    files = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, text=True, check=True).stdout
    pattern = re.compile(r"\b(?:install|upgrade) '?hpcrun(?![-\w])(?! \{)|\bhpcrun\[")
    for name in filter(None, files.split("\0")):
        if not name.startswith(("docs/images/", "tests/")) and (ROOT / name).is_file():
            assert not pattern.findall((ROOT / name).read_text(errors="replace")), name


def test_x_sets_the_training_settings(monkeypatch, capsys):
    table = (ROOT / "docs/training.md").read_text().split("## Settings")[1]
    names = set(re.findall(r"^\| `(HPCRUN_\w+)(?!.*, by `--)", table, re.MULTILINE))
    assert "HPCRUN_SPARSE_AS_DENSE" in names
    options = [word for name in sorted(names) for word in ("-x", f"{name}=1")]
    monkeypatch.setattr(sys, "argv", ["hpcrun", "submit", "--site", "slurm", "--dry-run", *options, "--", "true"])
    with pytest.raises(SystemExit):
        main()
    script = capsys.readouterr().out
    for name in names:
        assert f"{name}=1" in script


def test_the_page_on_templates_lists_all_blocks():
    page = (ROOT / "docs/templates.md").read_text()
    texts = [template.read_text() for template in (ROOT / "templates").glob("*.sh.j2")]
    blocks = {name for text in texts for name in re.findall(r"{%-? *block (\w+)", text)}
    assert blocks
    assert [name for name in sorted(blocks) if f"`{name}`" not in page] == []
