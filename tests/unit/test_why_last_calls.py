"""Where `hpcrun why` says that an exception was raised if no file of the user's is in its traceback."""

import pytest

from hpcrun.why.explanation import explain
from tests.unit.test_why import Recorded

HEAD = "Traceback (most recent call last):\n"
FIT = '  File "/env/lib/python3.10/site-packages/odd/core.py", line 5, in fit\n    check(batch)\n'
CHECK = '  File "/env/lib/python3.10/site-packages/even/check.py", line 9, in check\n    raise Odd(x)\n'
DECODE = '  File "/usr/lib/python3.10/json/decoder.py", line 355, in raw_decode\n    raise JSONDecodeError\n'
SCRIPT = '  File "/home/u/train.py", line 9, in <module>\n    model.fit(batch)\n'
COMMAND = '  File "/env/bin/odd-train", line 8, in <module>\n    sys.exit(main())\n'
RUNNER = '  File "/usr/lib/python3.10/runpy.py", line 86, in _run_code\n    exec(code, run_globals)\n'
MAIN = '  File "/env/lib/python3.10/site-packages/odd/tools/__main__.py", line 5, in <module>\n    fit()\n'


@pytest.fixture
def recorded(tmp_path):
    (tmp_path / "bin").mkdir()
    return Recorded(tmp_path)


def fix(recorded, *frames, error="ValueError: odd", where="12_0_log.err"):
    log = HEAD + "".join(frames) + error + "\n"
    return explain(recorded.job(exit_code=1, logs={where: log})).diagnosis.fix


@pytest.mark.parametrize(("frames", "place"), [
    ((COMMAND, FIT), "by fit() of odd/core.py (line 5, in `check(batch)`), which `odd-train` called"),
    ((RUNNER, MAIN, FIT), "by fit() of odd/core.py (line 5, in `check(batch)`), which `python -m odd.tools` called"),
    ((FIT, CHECK), "by check() of even/check.py (line 9, in `raise Odd(x)`)"),
    ((FIT, DECODE), "by raw_decode() of Python's json/decoder.py (line 355"),
    ((SCRIPT, FIT), "at /home/u/train.py, line 9, in `model.fit(batch)`, by odd/core.py;"),
    ((SCRIPT, FIT, CHECK), "at /home/u/train.py, line 9, in `model.fit(batch)`, by even/check.py, called by odd;"),
])  # fmt: skip
def test_the_last_call_is_named(recorded, frames, place):
    assert f"it was raised {place}" in fix(recorded, *frames)


def test_the_command_and_the_package_are_the_suspects_without_a_file_of_the_users(recorded):
    text = fix(recorded, COMMAND, FIT)
    assert "check the arguments, configuration and input files of `odd-train`" in text
    assert "pip install -U odd" in text
    assert "report it to odd" in text


def test_a_release_is_not_named_twice(recorded):
    text = fix(recorded, COMMAND, FIT, error="AttributeError: 'Odd' object has no attribute 'even'")
    assert "pip install -U" not in text
    assert "check the arguments, configuration and input files of `odd-train`;" in text


def test_only_the_last_of_several_tracebacks_counts(recorded):
    caught = f"{FIT}KeyError: 'x'\n\nDuring handling of the above exception, another exception occurred:\n\n{HEAD}"
    assert "by check() of even/check.py" in fix(recorded, COMMAND, caught, CHECK)
