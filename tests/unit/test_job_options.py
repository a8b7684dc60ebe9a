"""The table of a job's options: each field of JobOptions is an option of commands, API and records."""

import inspect
import json
from dataclasses import fields
from typing import Any

import pytest

import hpcrun
from hpcrun.job_options import OPTION_NAMES, JobOptions
from hpcrun.jobs import run_selection

CHANGED = {
    "max_parallel": 2,
    "max_requeue": 3,
    "memory_retries": 2,
    "no_gpu": True,
    "output_on_all_ranks": True,
    "strict": True,
    "framework": "torch",
    "launch": "nodes",
    "gpus_visible": "node",
    "log_level": "ERROR",
    "cpu_bind": "sockets",
    "fusion_threshold_kb": 64,
    "stage_in": ["/usr"],
    "unpack": ["/data/images.tar"],
    "compress": "bf16",
    "clip_factor": 3.0,
    "powersgd_rank": 2,
    "min_size": 100,
    "float_last_layer": True,
    "float_every": 50,
    "float_first": 1000,
    "error_feedback": False,
    "virtual_workers": 4,
}
"""A value of each option that is not its default."""

CODECS: dict[str, str] = {
    "clip_factor": "ternary",
    "powersgd_rank": "powersgd",
    **dict.fromkeys(("min_size", "float_last_layer", "float_every", "float_first", "error_feedback"), "ternary"),
}
"""The codec without which an option is refused."""


@pytest.fixture
def site(fake_slurm, tmp_path):
    """Return a site with all that options need."""
    (fake_slurm.folder / "id").write_text("1")
    file = tmp_path / "c.toml"
    file.write_text('extends = "slurm"\nlocal_scratch = ["/local"]\n')
    return str(file)


def recorded():
    run = run_selection.select_runs(["last"])[0]
    return json.loads(((run.sweep or run).directory / "job.json").read_text())


@pytest.mark.parametrize("option", fields(JobOptions), ids=lambda option: option.name)
def test_an_option_is_typed_recorded_and_repeated(cli, site, option):
    value, flag = CHANGED[option.name], option.metadata["option"].flag
    typed = str(value).lower() if option.name == "log_level" else str(*value if isinstance(value, list) else [value])
    argv = [flag] if value is True else ["--no-error-feedback"] if value is False else [flag, typed]
    codec = ["--compress", CODECS[option.name]] if option.name in CODECS else []
    submit = ("submit", "--site", site, "--sweep", "n=1,2", "--ntasks", "2", *codec)
    commands = [
        (*submit, *argv, "--", "true"),
        ("resubmit", "last"),
        (*submit, "--", "true"),
        ("resubmit", "last", *argv),
    ]
    values = []
    for command in commands:
        code, _, err = cli(*command)
        assert code == 0, err
        values.append(recorded()[option.name])
    assert [one == value for one in values] == [True, True, False, True], values
    read = getattr(run_selection.select_runs(["last"])[0].sweep.spec, option.name)
    assert read == (tuple(value) if isinstance(value, list) else value)


@pytest.mark.parametrize("name", OPTION_NAMES)
def test_an_option_is_an_argument_of_the_api(site, name):
    parameter = inspect.signature(hpcrun.submit).parameters[name]
    assert parameter.kind is parameter.KEYWORD_ONLY
    given: Any = {name: CHANGED[name]} | ({"compress": CODECS[name]} if name in CODECS else {})
    hpcrun.submit(None, ["true"], site=site, ntasks=2, sweep={"n": [1, 2]}, **given)
    assert recorded()[name] == CHANGED[name]


def test_a_job_in_the_foreground_has_no_options_of_queued_jobs(cli):
    for option in fields(JobOptions):
        if option.metadata["option"].commands == ("submit", "resubmit"):
            flag = option.metadata["option"].flag
            code, _, err = cli("run", flag, "2", "--", "true")
            assert (code, f"hpcrun run has no option {flag}" in err) == (2, True), err
