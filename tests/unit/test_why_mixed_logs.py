"""Which cause `hpcrun why` names if lines of ranks are mixed, or if several programs of a job failed."""

import json

import pytest

from hpcrun.why.explanation import explain
from hpcrun.why.interleaved import regroup
from hpcrun.why.sentences import complete, fill, shorten, split_steps
from tests.unit.test_why import recorded

__all__ = ["recorded"]

OWN = """Traceback (most recent call last):
  File "/home/u/train.py", line 22, in main
    rate = settings["rate"]
KeyError: 'rate'
"""
PEER = """Traceback (most recent call last):
  File "/home/u/train.py", line 50, in main
    dist.barrier()
torch.distributed.DistBackendError: NCCL communicator was aborted on rank 0: Connection reset by peer
"""
LOST_MPI_RANK = """Traceback (most recent call last):
  File "/home/u/train.py", line 50, in main
    comm.allreduce(total)
mpi4py.MPI.Exception: MPI_ERR_PROC_FAILED: a process failed
"""
ABORT = "terminate called after throwing an instance of 'std::runtime_error'\n  what():  mesh.exo: bad magic\n"
PLACE = '/home/u/train.py, line 22, in `rate = settings["rate"]`'


def mix(*texts):
    """Return a text with the lines of each text in turn."""
    lines = [text.splitlines() for text in texts]
    turns = range(max(map(len, lines)))
    return "".join(f"{each[turn]}\n" for turn in turns for each in lines if turn < len(each))


def label(prefix, text):
    return "".join(f"{prefix}{line}\n" for line in text.splitlines())


def diagnose(recorded, log):
    return explain(recorded.job(exit_code=1, logs={"12_0_log.err": log})).diagnosis


def test_the_indented_lines_of_a_message_stay_with_it(recorded):
    message = "RuntimeError: some settings differ:\n\tthe rate is 3 and not 4\n"
    log = mix(OWN.replace("KeyError: 'rate'\n", message), "INFO step 1\nINFO step 2\n")
    diagnosis = diagnose(recorded, log)
    assert "the rate is 3 and not 4" in diagnosis.summary
    assert "INFO" not in diagnosis.summary


@pytest.mark.parametrize(("error", "name"), [
    ("ModuleNotFoundError: No module named 'torch'", "torch"),
    ("ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory", "libcudart"),
    ("FileNotFoundError: [Errno 2] No such file or directory: '/data/imagenet'", "/data/imagenet"),
])  # fmt: skip
def test_what_no_earlier_program_could_have_written_is_the_cause(recorded, error, name):
    head = "Traceback (most recent call last):\n"
    frames = [f'  File "/home/u/{script}.py", line 2, in <module>\n    run()\n' for script in ("check", "train")]
    log = f"{head}{frames[0]}KeyError: 'x'\n{head}{frames[1]}{error}\n"
    assert name in diagnose(recorded, log).summary


@pytest.mark.parametrize("log", [
    mix(OWN, "".join(f"INFO step {n} done\n" for n in range(9))),
    mix(label("[1,1]<stderr>:", OWN), label("[1,0]<stderr>:", PEER)),
    mix(label("0: ", PEER), label("1: ", OWN)),
    mix(label("[rank1]: ", OWN), "".join(f"[rank0]: step {n}\n" for n in range(9))),
])  # fmt: skip
def test_a_traceback_between_lines_of_others_is_read_whole(recorded, log):
    diagnosis = diagnose(recorded, log)
    assert "KeyError: 'rate'" in diagnosis.summary
    assert PLACE in diagnosis.fix


@pytest.mark.parametrize("log", [
    f"RuntimeError: a worker failed: {OWN!r}\n",
    json.dumps({"level": "error", "exception": OWN}) + "\n",
])  # fmt: skip
def test_a_traceback_in_a_string_is_read(recorded, log):
    diagnosis = diagnose(recorded, log)
    assert "KeyError: 'rate'" in diagnosis.summary
    assert PLACE in diagnosis.fix


def test_the_message_of_an_abort_between_lines_of_others_is_read(recorded):
    assert "bad magic" in diagnose(recorded, mix(ABORT, "step 1\nstep 2\n")).summary


def test_lines_keep_their_order_without_others_between_them():
    lines = f"first\n{OWN}\n{ABORT}last".split("\n")
    assert regroup(lines, lines) == list(range(len(lines)))


def test_a_lost_rank_of_mpi_is_a_consequence(recorded):
    assert "KeyError" in diagnose(recorded, OWN + LOST_MPI_RANK).summary


@pytest.mark.parametrize("failure", [OWN, ABORT])
def test_what_a_script_does_after_a_program_failed_is_a_consequence(recorded, failure):
    log = f"{failure}cp: cannot stat 'results/out.npz': No such file or directory\n"
    assert diagnose(recorded, log).name in {"traceback", "cpp-exception"}


def test_a_file_that_an_earlier_program_should_have_written_is_a_consequence(recorded):
    first = OWN.replace("main", "<module>").replace("train.py", "prepare.py")
    second = """Traceback (most recent call last):
  File "/home/u/train.py", line 3, in <module>
    open("prepared.bin")
FileNotFoundError: [Errno 2] No such file or directory: 'prepared.bin'
"""
    assert "KeyError" in diagnose(recorded, first + second).summary


@pytest.mark.parametrize(("before", "error"), [(OWN, "KeyError: 'rate'"), ("", "a worker died")])
def test_the_exception_to_which_another_one_points_is_the_cause(recorded, before, error):
    pointer = OWN.replace("KeyError: 'rate'", "RuntimeError: a worker died. Please check the print statements above")
    assert error in diagnose(recorded, before + pointer).summary


def test_a_rank_that_was_killed_after_an_abort_is_no_cause(recorded):
    log = """application called MPI_Abort(MPI_COMM_WORLD, 0) - process 3[cli_3]: aborting job:
rank 7 in job 2  master_49512   caused collective abort of all ranks
  exit status of rank 7: killed by signal 9
"""
    assert diagnose(recorded, log).name == "mpi-abort"


def test_a_missing_file_after_a_failure_of_the_same_program_is_the_cause(recorded):
    caught = OWN.replace("main", "<module>")
    log = f"""{caught}using defaults
{caught.replace("KeyError: 'rate'", "FileNotFoundError: [Errno 2] No such file or directory: 'data.bin'")}"""
    assert diagnose(recorded, log).name == "data-missing"


def test_the_place_of_the_cause_is_named_if_the_program_raised_another_exception_after_it(recorded):
    log = f"""{OWN}
The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/home/u/run.py", line 3, in main
    raise RuntimeError("the training failed") from error
RuntimeError: the training failed
"""
    assert PLACE in diagnose(recorded, log).fix


@pytest.mark.parametrize(("before", "message"), [
    ("amrex::Abort::3::Fab has NaN at level 2 !!!\nSIGABRT\n", "amrex::Abort::3::Fab has NaN at level 2 !!!"),
    ("step 3 done\nSIGABRT\n", ""),
])  # fmt: skip
def test_the_message_before_an_abort_of_mpi_is_quoted(recorded, before, message):
    log = f"{before}MPICH ERROR [Rank 3] [job id 12.0] - Abort(6) (rank 3 in comm 480): application called MPI_Abort\n"
    diagnosis = diagnose(recorded, log)
    assert diagnosis.name == "mpi-abort"
    assert diagnosis.summary.partition(" after this message: ")[2] == message
    assert ("the numbers became invalid" in diagnosis.fix) is bool(message)


@pytest.mark.parametrize(("text", "message"), [
    ("The library found no device that it could use for all of the ranks\non this node. More.", "ranks on this node."),
    ("The library found no device that it could use for all of the ranks\nINFO: leaving", "all of the ranks"),
    ("The library found no device that it could use for all of the ranks.\nleaving", "all of the ranks."),
    ("No device for the ranks\non this node.", "No device for the ranks"),
])  # fmt: skip
def test_a_sentence_that_a_program_broke_is_completed(text, message):
    assert complete(text, 0, text.index("\n")).endswith(message)


@pytest.mark.parametrize(("value", "text"), [("", "stopped: see the log"), ("x", "stopped (x): see the log x")])
def test_a_value_that_is_empty_leaves_no_gap(value, text):
    assert fill("stopped ({name}): see the log {name}", {"name": value}) == text


@pytest.mark.parametrize(("frames", "libraries"), [
    ([
        "/lib64/libpthread.so.0(+0x11390)[0x7f48]",
        "/env/lib/python3.7/site-packages/torch/lib/libtorch_cuda.so(+0x25ee391)[0x7f48]",
        "/env/lib/python3.7/site-packages/horovod/torch/mpi_lib_v2.so(+0x8e0d9)[0x7f48]",
    ], "; its backtrace begins in torch/lib/libtorch_cuda.so, called by horovod/torch/mpi_lib_v2.so"),
    (["/opt/openmpi/lib/libmpi.so.40(PMPI_Send+0x1a)[0x7f48]"], "; its backtrace begins in libmpi.so.40 (PMPI_Send)"),
    (["./solver(main+0x1a)[0x40]"], "consequences"),
])  # fmt: skip
def test_the_library_in_which_a_rank_crashed_is_named(recorded, frames, libraries):
    prefix = "[1,3]<stderr>:[n1:03070]"
    log = "".join(f"{prefix} [ {number}] [1,3]<stderr>:{frame}\n" for number, frame in enumerate(frames))
    log += "mpirun noticed that process rank 3 with PID 3070 on node n1 exited on signal 11 (Segmentation fault).\n"
    assert diagnose(recorded, log).summary.endswith(libraries)


def test_long_instructions_are_one_line_each():
    fix = f"set `ulimit -n 4096; true` in setup (of the site; or yours); {'long ' * 30}; run it again"
    assert split_steps(fix) == [
        "set `ulimit -n 4096; true` in setup (of the site; or yours)",
        "long " * 30,
        "run it again",
    ]
    assert split_steps("set it; run it again") == ["set it; run it again"]


JAVA = """Exception in thread "main" java.lang.IllegalArgumentException: n must be positive
\tat scala.Predef$.require(Predef.scala:281)
\tat sim.Main$.run(Main.scala:22)
"""
FORTRAN = """ERROR STOP 3

Error termination. Backtrace:
#1  0x55 in solve_
\tat /home/u/solve.f90:88
"""


@pytest.mark.parametrize(("log", "place"), [
    (JAVA, "Main.scala, line 22"),
    (FORTRAN, "/home/u/solve.f90, line 88"),
    ("Error: bad manifest\n    at run (/home/u/run.js:14:11)\n", "/home/u/run.js, line 14"),
    (f"malloc(): corrupted top size\nProgram received signal SIGABRT:\n{FORTRAN[12:]}", "/home/u/solve.f90, line 88"),
    ("Error: bad manifest\nI0301 10:00:00 loader.cc:17] closing\n", ""),
])  # fmt: skip
def test_the_place_in_a_backtrace_of_another_language_is_named(recorded, log, place):
    fix = diagnose(recorded, log).fix
    assert fix.partition("; it was raised at ")[2] == place


@pytest.mark.parametrize(("text", "short"), [
    ("a short one", "a short one"),
    (f"{'word ' * 40}end. {'more ' * 40}", f"{'word ' * 40}end. ..."),
    ("word " * 80, f"{'word ' * 63}word ..."),
])  # fmt: skip
def test_a_long_headline_is_cut_after_a_sentence_or_word(text, short):
    assert shorten(text) == short


ABORT_BOX = "MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD\nwith errorcode 1.\n"
REPORT = "srun: error: n1: task 0: Aborted (core dumped)\n"


@pytest.mark.parametrize(("report", "name"), [(ABORT_BOX, "mpi-abort"), (REPORT, "aborted")])
def test_the_message_in_the_other_log_is_quoted(recorded, report, name):
    logs = {"12_0_log.out": "step 1\n*** input deck has 3 errors ***\nstopping\n", "12_0_log.err": report}
    diagnosis = explain(recorded.job(exit_code=1, logs=logs)).diagnosis
    assert diagnosis.name == name
    assert "*** input deck has 3 errors ***" in [seen.line for seen in diagnosis.evidence]


def test_scripts_read_the_whole_headline(recorded):
    message = "ValueError: " + "a long reason " * 25
    job = recorded.job(exit_code=1, logs={"12_0_log.err": OWN.replace("KeyError: 'rate'", message)})
    assert message.strip() in explain(job).as_json()["headline"]
