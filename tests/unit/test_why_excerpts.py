"""What `hpcrun why` reads from notebooks, and from tracebacks of which a log has only the end."""

import pytest

from hpcrun.why.explanation import explain
from hpcrun.why.sentences import complete
from tests.unit.test_why import recorded

__all__ = ["recorded"]

OLD_NOTEBOOK = """KeyError                                  Traceback (most recent call last)
<ipython-input-12-68247dafd21c> in <module>
      1 a = 1
----> 3 model.frob(data["lab"])

~/env/lib/python3.8/site-packages/frob/core.py in frob(self, name)
    785     check(name)
--> 787     raise KeyError(name)

"""
COLAB = """[<ipython-input-27-8e1659b7ce5b>](https://localhost:8080/#) in <cell line: 6>()
----> 6 model = build(

2 frames
[/usr/local/lib/python3.10/dist-packages/frob/core.py](https://localhost:8080/#) in build(self)
     61         if not self._inputs:
---> 62             raise ValueError(

"""
HEADING = "ValueError                                Traceback (most recent call last)\n"
WINDOWS = """Traceback (most recent call last):
  File "C:\\Users\\me\\train.py", line 22, in <module>
    model.frob(x)
  File "C:\\Users\\me\\lib\\site-packages\\frob\\core.py", line 10, in frob
    raise ValueError(x)
"""
CUT = """  File "/home/u/train.py", line 9, in main
    model.frob(x)
  File "/env/lib/python3.8/site-packages/frob/core.py", line 10, in frob
    raise ValueError(x)
"""


FLAT = "\n".join(line.strip() for line in CUT.splitlines()) + "\n"
KERNEL = """KeyError                                  Traceback (most recent call last)
/tmp/ipykernel_103/2689077115.py in <module>
---> 32 train()

/env/lib/python3.8/site-packages/frob/core.py in frob(self, name)
--> 787     raise KeyError(name)

"""


def diagnose(recorded, log):
    return explain(recorded.job(exit_code=1, logs={"12_0_log.err": log})).diagnosis


@pytest.mark.parametrize(("log", "place"), [
    (OLD_NOTEBOOK + "KeyError: 'lab'\n", "Cell In [12], line 3, in `model.frob(data[\"lab\"])`, by frob/core.py"),
    (HEADING + COLAB + "ValueError: odd\n", "Cell In [27], line 6, in `model = build(`, by frob/core.py"),
    (WINDOWS + "ValueError: odd\n", "C:/Users/me/train.py, line 22, in `model.frob(x)`, by frob/core.py"),
    (f"Traceback (most recent call last):\n{FLAT}ValueError: odd\n", "/home/u/train.py, line 9, in `model.frob(x)`"),
    (KERNEL + "KeyError: 'lab'\n", "a cell of the notebook, line 32, in `train()`, by frob/core.py"),
    (CUT + "ValueError: odd\n", "/home/u/train.py, line 9, in `model.frob(x)`, by frob/core.py"),
])  # fmt: skip
def test_the_users_line_of_code_is_named(recorded, log, place):
    diagnosis = diagnose(recorded, log)
    assert diagnosis.name == "traceback"
    assert f"it was raised at {place}" in diagnosis.fix


@pytest.mark.parametrize("end", ["Extension modules: odd (total: 1)\n", "ERROR: odd\n", "done\n"])
def test_frames_without_an_exception_after_them_are_no_exception(recorded, end):
    assert diagnose(recorded, CUT + end).name != "traceback"


def test_the_second_line_of_a_long_message_is_kept(recorded):
    message = (
        f"RuntimeError: barrier failed: ({'shape, ' * 80}). Error:\n[../gloo/pair.cc:598] Connection closed by peer\n"
    )
    assert diagnose(recorded, CUT + message).name == "peer-lost"


def test_the_next_record_of_a_logger_does_not_continue_a_message():
    text = "E tensorflow/cuda_dnn.cc:385] could not create cudnn handle: STATUS_A\n"
    text += "E tensorflow/cuda_dnn.cc:352] could not destroy handle\n"
    end = text.index("\n")
    assert complete(text, 0, end) == text[:end]


@pytest.mark.parametrize("margin", ["    ", "> "])
def test_the_margin_of_a_quoted_log_is_left_out(recorded, margin):
    log = "slurmstepd: error: Detected 1 oom_kill event in StepId=12.0. Some of the step tasks have been OOM Killed.\n"
    quoted = "".join(f"{margin}{line}\n" for line in ["step 1", "srun: error: n1: task 0: Out Of Memory", log.strip()])
    assert diagnose(recorded, quoted).name == "host-memory"


def test_the_package_that_crashed_is_named(recorded):
    log = """[n1:03599] Signal: Segmentation fault (11)
[n1:03599] [ 0] /lib/x86_64-linux-gnu/libpthread.so.0(+0x11390)[0x7fe26f028390]
[n1:03599] [ 1] /env/lib/python2.7/site-packages/horovod/tensorflow/mpi_lib.so(+0x34887)[0x7fe1b6d46887]
"""
    diagnosis = diagnose(recorded, log)
    assert "horovod/tensorflow/mpi_lib.so" in diagnosis.summary
    assert diagnosis.fix.startswith("another release of horovod")
