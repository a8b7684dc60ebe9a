"""What `hpcrun why` makes of many wordings of a message, as versions of programs print it."""

import re
from pathlib import Path

import pytest

from hpcrun.jobs.states import State
from hpcrun.why.job_facts import JobFacts
from hpcrun.why.ranking import find_diagnoses
from tests.unit.test_why import Recorded

pytestmark = pytest.mark.slow

FAMILIES = sorted((Path(__file__).parent / "messages").glob("*.txt"))


def read(file):
    """Yield the name, the options and the log of each block, which starts with ``=== NAME OPTION=VALUE``."""
    blocks = re.split(r"^=== (?=[a-z])(.*)\n", file.read_text(), flags=re.MULTILINE)[1:]
    for head, log in zip(blocks[::2], blocks[1::2], strict=True):
        name, *options = head.split()
        yield name, dict(option.split("=", 1) for option in options), log


@pytest.mark.parametrize("file", FAMILIES, ids=lambda file: file.stem)
def test_wordings_are_recognised(tmp_path, file):
    wrong = []
    for number, (name, options, log) in enumerate(read(file)):
        (tmp_path / f"{number}/bin").mkdir(parents=True)
        recorded = Recorded(tmp_path / str(number))
        run = recorded.job(logs={"12_0_log.err": log}, launcher=options.get("launcher", "none"))
        diagnoses = find_diagnoses("failures", JobFacts(run, State("FAILED")))
        first = f"{diagnoses[0].name}: {diagnoses[0].summary}; {diagnoses[0].fix}" if diagnoses else "none"
        if not first.startswith(f"{name}:") or options.get("has", "").replace("_", " ") not in first:
            wrong.append(f"{first}\n{log}")
    assert wrong == []
