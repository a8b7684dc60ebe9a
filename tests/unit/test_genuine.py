"""Records that are acted on: what was looked at is what is used, whatever is put in its place meanwhile."""

import json
import tempfile
from dataclasses import asdict
from pathlib import Path

import pytest

from hpcrun import secrets
from hpcrun.errors import HpcrunError
from hpcrun.jobs import record_trust
from hpcrun.jobs.runs import Run


@pytest.fixture
def open_root(monkeypatch):
    """A run root that everybody may enter."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        monkeypatch.setenv("HPCRUN_RUN_ROOT", folder)
        yield


@pytest.fixture
def run(fake_slurm, open_root):
    made = fake_slurm.submit("mine", nodes=1)
    fake_slurm.write_exit_record(made)
    for file in (made.directory / "submitted.json", made.directory / "exit.json"):
        file.chmod(0o600)
    made.directory.chmod(0o755)
    (made.directory / "starts.jsonl").write_text('{"job_id": "1", "nodes": "n1"}\n')
    (made.directory / "starts.jsonl").chmod(0o600)
    return Run(made.directory)


def replaced(file, content, mode=0o666):
    part = file.with_name("theirs")
    part.write_text(content)
    part.chmod(mode)
    part.replace(file)


def test_records_read_before_the_trust_check_are_read_again(run):
    file = run.directory / "submitted.json"
    own = file.read_text()
    replaced(file, json.dumps({**json.loads(own), "job_id": "666"}))
    assert run.job_id == "666"
    replaced(file, own, 0o600)
    record_trust.require_trusted(run)
    assert run.job_id == "1"


def test_a_record_replaced_after_the_trust_check_is_not_used(run):
    record_trust.require_trusted(run)
    assert (run.exit_record().exit_code, run.nodes()) == (0, ["n1"])
    replaced(run.directory / "starts.jsonl", '{"job_id": "666", "nodes": "evil"}\n')
    replaced(run.directory / "exit.json", json.dumps({**asdict(run.exit_record()), "host": "evil"}))
    assert (run.exit_record(), run.nodes(), run.job_ids()) == (None, [], ["1"])
    assert "is not used: everybody may write" in run.faults["exit.json"]
    (run.directory / "exit.json").unlink()
    (run.directory / "exit.json").symlink_to("/dev/null")
    assert run.exit_record() is None


def test_a_record_replaced_during_the_trust_check_is_refused(run, monkeypatch):
    look = record_trust._find_trust_problem

    def exchanging(file):
        why = look(file)
        if file.name == "submitted.json":
            replaced(file, json.dumps({**json.loads(file.read_text()), "job_id": "666"}))
        return why

    monkeypatch.setattr(record_trust, "_find_trust_problem", exchanging)
    with pytest.raises(HpcrunError, match=r"submitted.json is not used: everybody may write(.|\n)*HINT: "):
        record_trust.require_trusted(run)


def test_secrets_that_others_can_write_are_not_resubmitted(fake_slurm, open_root, cli):
    job = fake_slurm.submit("mine", environment={"HF_TOKEN": "abcdefgh1234"})
    fake_slurm.write_exit_record(job)
    assert cli("resubmit", "1", "--dry-run")[0] == 0
    job.directory.chmod(0o755)
    (job.directory / secrets.SECRETS_FILE).chmod(0o666)
    code, _, err = cli("resubmit", "1", "--dry-run")
    assert (code, "secrets.env: everybody may write" in err, "HINT:" in err) == (2, True, True), err
