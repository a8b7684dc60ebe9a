"""Which of several messages `hpcrun why` takes for the cause, and what it reads from an exception."""

import pytest

from hpcrun.why.explanation import explain
from tests.unit.test_why import recorded

__all__ = ["recorded"]

STALL = """[1,0]<stderr>:[2019-10-09 15:36:43.594972: W horovod/common/stall_inspector.cc:105] One or more tensors \
were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for \
more than 60 seconds.
[1,0]<stderr>:Stalled ranks:
[1,0]<stderr>:6: [horovod_allreduce.0, horovod_allreduce.1]
"""
LIMIT = "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2019-10-09T16:02:11 DUE TO TIME LIMIT ***\n"
PROGRESS = "".join(f"step {n}/900 loss 2.{n}\n" for n in range(10))


@pytest.mark.parametrize(("log", "names"), [
    (PROGRESS + STALL + LIMIT, ["horovod-stall", "time-limit"]),
    (STALL + PROGRESS + LIMIT, ["time-limit"]),
])  # fmt: skip
def test_a_stall_is_the_cause_of_a_time_limit_unless_the_program_went_on(recorded, log, names):
    explanation = explain(recorded.job("TIMEOUT", logs={"12_0_log.err": log}))
    assert [explanation.diagnosis.name, *(other.name for other in explanation.others)] == names


@pytest.mark.parametrize(("log", "name"), [
    ("", "lightning-waits"),
    ("All distributed processes registered. Starting with 2 processes\n", "time-limit"),
])  # fmt: skip
def test_ranks_that_lightning_waits_for_are_the_cause_of_a_time_limit(recorded, log, name):
    start = "Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/2\n"
    explanation = explain(recorded.job("TIMEOUT", logs={"12_0_log.err": start + log + LIMIT}))
    assert explanation.diagnosis.name == name


def test_a_stall_with_another_cause_is_not_named(recorded):
    log = STALL + "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    explanation = explain(recorded.job("FAILED", exit_code=1, logs={"12_0_log.err": log}))
    assert [explanation.diagnosis.name, *(other.name for other in explanation.others)] == ["gpu-memory"]


@pytest.mark.parametrize(("end", "operation"), [
    ("[Op:IteratorGetNextSync]", "the operation crop/unstack in the input pipeline (tf.data) failed"),
    ("[Op:__inference_train_function_8]", "the operation crop/unstack in the graph failed"),
])  # fmt: skip
def test_the_operation_of_a_graph_is_named(recorded, end, operation):
    log = f"""Traceback (most recent call last):
  File "train.py", line 178, in train
    for batch in ds:
tensorflow.python.framework.errors_impl.InvalidArgumentError: Some shapes do not fit here
\t [[{{{{node crop/unstack}}}}]] {end}
"""
    explanation = explain(recorded.job(exit_code=1, logs={"12_0_log.err": log}))
    assert explanation.diagnosis.name == "traceback"
    assert operation in explanation.diagnosis.fix


def test_code_without_a_file_is_not_the_place_of_an_exception(recorded):
    log = """Traceback (most recent call last):
  File "/env/lib/python3.7/site-packages/pkg/init.py", line 511, in init
    six.raise_from(Exception("problem"), error_seen)
  File "<string>", line 3, in raise_from
Exception: problem
"""
    explanation = explain(recorded.job(exit_code=1, logs={"12_0_log.err": log}))
    assert "raised at /env/lib/python3.7/site-packages/pkg/init.py, line 511" in explanation.diagnosis.fix


def test_a_carriage_return_in_a_name_stays_in_its_line(recorded):
    run = recorded.job(exit_code=127)
    (run.directory / "12_0_log.err").write_bytes(b"/usr/bin/env: bash\r: No such file or directory\n")
    explanation = explain(run)
    assert explanation.diagnosis.name == "line-ends"
    assert explanation.diagnosis.evidence[0].line == "/usr/bin/env: bash\\r: No such file or directory"
