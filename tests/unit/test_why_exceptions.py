"""What `hpcrun why` reads from a traceback beyond its last line."""

import pytest

from hpcrun.why.exception_advice import advise
from hpcrun.why.explanation import explain
from tests.unit.test_why import recorded

__all__ = ["recorded"]

HEAD = 'Traceback (most recent call last):\n  File "/home/u/train.py", line 9, in main\n    model.fit(batch)\n'
RICH = """╭──────────────────────── Traceback (most recent call last) ────────────────────────╮
│ /home/u/train.py:41 in main                                                       │
│                                                                                   │
│   40 │                                                                            │
│ ❱ 41 │   engine.start(batch)                                                      │
╰───────────────────────────────────────────────────────────────────────────────────╯
ValueError: the first part of this message is so long that rich had to break it, and
its second part follows
"""


def diagnose(recorded, log):
    return explain(recorded.job(exit_code=1, logs={"12_0_log.err": log})).diagnosis


@pytest.mark.parametrize(("message", "advice"), [
    ("ValueError: odd settings\nPlease set `alpha` above 0.", "its message says: Please set `alpha` above 0.; it was"),
    ("ValueError: odd settings\n\nTo fix this, pass alpha.\n", "its message says: To fix this, pass alpha.; it was"),
    ("ValueError: odd settings. Please set alpha", "do what its message says; it was"),
    ("ValueError: odd settings\nEpoch 3 ended", "it was raised"),
    ("ValueError: odd settings\nPlease open an issue if you use this.", "it was raised"),
])  # fmt: skip
def test_the_fix_is_what_the_message_says_to_do(recorded, message, advice):
    assert diagnose(recorded, HEAD + message + "\n").fix.startswith(advice)


def test_the_users_line_of_code_and_the_library_are_named(recorded):
    library = '  File "/env/lib/python3.10/site-packages/odd/core.py", line 5, in fit\n    raise ValueError(x)\n'
    fix = diagnose(recorded, HEAD + library + "ValueError: odd\n").fix
    assert "raised at /home/u/train.py, line 9, in `model.fit(batch)`, by odd/core.py" in fix


def test_a_message_that_rich_wrapped_is_one_line(recorded):
    diagnosis = diagnose(recorded, RICH)
    assert diagnosis.summary.endswith("had to break it, and its second part follows")
    assert "/home/u/train.py, line 41, in `engine.start(batch)`" in diagnosis.fix


@pytest.mark.parametrize(("link", "name"), [
    ("During handling of the above exception, another exception occurred:", "traceback"),
    ("The above exception was the direct cause of the following exception:", "data-missing"),
])  # fmt: skip
def test_an_exception_that_the_program_caught_is_not_the_cause(recorded, link, name):
    caught = HEAD + "FileNotFoundError: [Errno 2] No such file or directory: '/data/cache.bin'\n"
    assert diagnose(recorded, f"{caught}\n{link}\n\n{HEAD}ValueError: odd\n").name == name


def test_lines_of_other_programs_are_no_exceptions(recorded):
    log = HEAD + "slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***\nValueError: odd\n"
    assert "ValueError: odd" in diagnose(recorded, log).summary


def test_a_metric_of_keras_2_is_recognised():
    advice = advise("AttributeError: 'SparseCategoricalAccuracy' object has no attribute 'reset_states'")
    assert advice.endswith("with Keras 2: pip install tf_keras, and submit with -x TF_USE_LEGACY_KERAS=1")


def test_advice_depends_on_the_line_of_code_and_quotes_the_name():
    of_checkpoint = advise("KeyError: 'optimizer'", code="opt.load_state_dict(ckpt['optimizer'])")
    of_environment = advise("KeyError: 'DATA_DIR'", code="root = os.environ['DATA_DIR']")
    assert "checkpoint" in of_checkpoint
    assert "-x DATA_DIR=VALUE" in of_environment
    assert "checkpoint" not in advise("KeyError: 'optimizer'", code="x = table['optimizer']")


def test_an_exception_of_a_thread_comes_before_what_the_main_thread_says_of_it(recorded):
    thread = HEAD.replace("model.fit(batch)", "power = profile['battery']") + "KeyError: 'battery'\n"
    main = HEAD + "RuntimeError: Exception in ServerApp thread\n"
    log = f"Exception in thread Thread-1 (serve):\n{thread}{main}"
    assert "KeyError: 'battery'" in diagnose(recorded, log).summary


def test_the_line_after_an_exception_without_a_message_is_not_its_message(recorded):
    library = (
        '  File "/env/lib/python3.6/site-packages/odd/data.py", line 5, in f\n    x.shape == y.shape or _raise(V())\n'
    )
    diagnosis = diagnose(recorded, f"{HEAD}{library}ValueError\nUsing TensorFlow backend.\n")
    assert diagnosis.summary == "the program raised ValueError: x.shape == y.shape or _raise(V())"
    assert diagnosis.fix.startswith("a package requires the condition")


def test_a_traceback_behind_the_progress_bar_of_an_epoch_is_found(recorded):
    progress = f"3504/3504 [{'=' * 30}] - ETA: 0s - loss: 0.3867 - pearsonr: 0.0205 - r2: -0.1191 "
    assert "line 9, in `model.fit(batch)`" in diagnose(recorded, f"{progress}{HEAD}ValueError: odd\n").fix


def test_an_exception_that_a_destructor_ignored_is_not_the_cause(recorded):
    where = 'File "h5py/_objects.pyx", line 193, in h5py._objects.ObjectID.__dealloc__'
    destructor = (
        f"Traceback (most recent call last):\n  {where}\nRuntimeError: Can't decrement id ref count\n"
        "Exception ignored in: 'h5py._objects.ObjectID.__dealloc__'\n"
    )
    assert "ValueError: odd" in diagnose(recorded, f"{HEAD}ValueError: odd\n{destructor}").summary


def test_advice_names_the_package_that_raised_the_exception():
    advice = advise("AttributeError: 'Odd' object has no attribute 'x'", file="/env/site-packages/sklearn/base.py")
    assert advice.startswith("scikit-learn uses .x of an object of Odd")


@pytest.mark.parametrize(("message", "name"), [
    ("slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***", "cancelled-in-log"),
    ("slurmstepd-n1: error: *** JOB 12 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***", "time-limit"),
    (f"{HEAD}ValueError: odd", "traceback"),
])  # fmt: skip
@pytest.mark.parametrize("colour", ["", "\x1b[0m"])
def test_a_message_behind_a_progress_bar_is_found(recorded, message, name, colour):
    assert diagnose(recorded, f"  6%|#    | 2/33 [00:02<00:39,  1.28s/it{colour}]{message}\n").name == name


def test_an_error_of_the_system_says_more_than_the_library_that_reports_it(recorded):
    library = '  File "/env/lib/python3.11/site-packages/torch/autograd/graph.py", line 8, in f\n    run(x)\n'
    fix = diagnose(recorded, f"{HEAD}{library}RuntimeError: Resource temporarily unavailable\n").fix
    assert fix.startswith("a limit is reached (processes and threads")


def test_a_check_of_the_program_itself_is_called_so(recorded):
    own = HEAD.replace("model.fit(batch)", 'raise ValueError("Cluster the cells first")')
    assert diagnose(recorded, f"{own}ValueError: Cluster the cells first\n").fix.startswith(
        "it is a check of the program"
    )
