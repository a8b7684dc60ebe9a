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
OWN = """Traceback (most recent call last):
  File "/home/u/data.py", line 12, in check
    raise ValueError("sample 17 has no label")
ValueError: sample 17 has no label
"""
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


@pytest.mark.parametrize(("log", "name"), [
    (f"{PROGRESS}{OWN}{LIMIT}", "traceback"),
    (f"{OWN}{PROGRESS}{LIMIT}", "time-limit"),
])  # fmt: skip
def test_an_exception_is_the_cause_of_a_time_limit_unless_the_program_went_on(recorded, log, name):
    explanation = explain(recorded.job("TIMEOUT", logs={"12_0_log.err": log}))
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
    assert "raised by init() of pkg/init.py (line 511, in `six" in explanation.diagnosis.fix


def test_a_carriage_return_in_a_name_stays_in_its_line(recorded):
    run = recorded.job(exit_code=127)
    (run.directory / "12_0_log.err").write_bytes(b"/usr/bin/env: bash\r: No such file or directory\n")
    explanation = explain(run)
    assert explanation.diagnosis.name == "line-ends"
    assert explanation.diagnosis.evidence[0].line == "/usr/bin/env: bash\\r: No such file or directory"


STEPS = "".join(f"epoch {n}/20  loss 0.{9 - n}  120 images/s\n" for n in range(6))
CAUGHT = OWN.replace("ValueError: sample 17 has no label", "FileNotFoundError: [Errno 2] No such file: x")
WARNINGS = {
    "modules": "/home/u/setup.sh: line 12: module: command not found\n",
    "linker": "/usr/bin/ld: cannot find -lsomething: No such file or directory\n",
    "memory": "Batch size 128 failed: CUDA out of memory. Tried to allocate 2.00 GiB\nBatch size 64 succeeded\n",
    "caught": f"{CAUGHT}new run\n",
    "step": "slurmstepd: error: Detected 1 oom_kill event in StepId=77.0. Some of the tasks have been OOM Killed.\n",
    "libibverbs": "libibverbs: Warning: libi40iw.so: cannot open shared object file: No such file or directory\n",
}


@pytest.mark.parametrize("warning", WARNINGS.values(), ids=WARNINGS)
@pytest.mark.parametrize("split", [False, True], ids=["one log", "two logs"])
def test_a_message_before_the_training_is_not_the_cause_of_its_end(recorded, warning, split):
    logs = {"12_0_log.err": warning + OWN, "12_0_log.out": STEPS} if split else {"12_0_log.err": warning + STEPS + OWN}
    explanation = explain(recorded.job(exit_code=1, logs=logs))
    assert "sample 17 has no label" in explanation.headline


@pytest.mark.parametrize("warning", WARNINGS.values(), ids=WARNINGS)
def test_the_programs_last_message_is_the_cause_after_its_progress(recorded, warning):
    log = f"{warning}{STEPS}ERROR: unknown key dtx in input.nml\nsrun: error: n1: task 0: Exited with exit code 1\n"
    assert "unknown key dtx" in explain(recorded.job(exit_code=1, logs={"12_0_log.err": log})).headline


def test_an_ignored_exception_is_not_the_cause_beside_a_message(recorded):
    ignored = f"Exception ignored in: <function Loader.__del__ at 0x7f>\n{OWN}"
    log = f"{ignored}ERROR: unknown key dtx in input.nml\nsrun: error: n1: task 0: Exited with exit code 1\n"
    assert "unknown key dtx" in explain(recorded.job(exit_code=1, logs={"12_0_log.err": log})).headline


def test_the_programs_last_lines_are_quoted_where_no_error_is_known(recorded):
    log = "reading the index\nit went away: Stale file handle!\nsrun: error: n1: task 0: Exited with exit code 3\n"
    run = recorded.job(exit_code=3, logs={"12_0_log.err": log.replace("Stale file handle!", "bye")})
    lines = [seen.line for seen in explain(run).diagnosis.evidence]
    assert lines == ["reading the index", "it went away: bye", "srun: error: n1: task 0: Exited with exit code 3"]


@pytest.mark.parametrize(("end", "file"), [
    ("gmx_mpi mdrun -deffnm min01 > min01.log 2>&1", "min01.log"),
    ("./solver -i case.in &>> out/solver.txt", "out/solver.txt"),
    ("./solver -i case.in > /dev/null 2>&1", ""),
    ("./solver -i case.in 2>&1", ""),
])  # fmt: skip
def test_the_file_that_has_the_output_of_a_crashed_command_is_named(recorded, end, file):
    log = f"run.sh: line 8: 247687 Aborted                 {end}\n"
    diagnosis = explain(recorded.job(exit_code=134, logs={"12_0_log.err": log})).diagnosis
    assert diagnosis.name == "aborted"
    assert diagnosis.fix.startswith(f"its own output went to {file}: ") == bool(file)


def test_ranks_that_are_killed_after_an_abort_did_not_run_out_of_memory(recorded):
    log = "0: application called MPI_Abort(MPI_COMM_WORLD, 1) - process 0\nsrun: error: n1: tasks 0-15: Killed\n"
    assert explain(recorded.job(exit_code=137, logs={"12_0_log.err": log})).diagnosis.name == "mpi-abort"


def test_what_the_line_after_a_message_says_to_do_is_quoted(recorded):
    log = "Error: the counter is taken by another one\nPlease stop the other one first\n"
    fix = explain(recorded.job(exit_code=1, logs={"12_0_log.err": log})).diagnosis.fix
    assert fix.startswith("its next line says: Please stop the other one first")


def test_the_failure_of_a_thread_comes_before_what_its_data_lack(recorded):
    log = f"""Exception in thread Thread-1:
{OWN}
Traceback (most recent call last):
  File "/home/u/train.py", line 3, in <module>
    model.fit_generator(g)
ValueError: output of generator should be a tuple `(x, y)`. Found: None
"""
    assert "sample 17 has no label" in explain(recorded.job(exit_code=1, logs={"12_0_log.err": log})).headline


def test_commands_of_slurm_may_have_other_names(recorded):
    log = "yhrun: error: Node failure on cn9232\n"
    diagnosis = explain(recorded.job(exit_code=1, logs={"12_0_log.err": log})).diagnosis
    assert (diagnosis.name, diagnosis.evidence[0].line) == ("node-failure", log.strip())


@pytest.mark.parametrize(("gpus", "name"), [(None, "completed"), ("1", "no-gpu")])
def test_a_job_on_cpus_is_not_told_that_it_sees_no_gpu(recorded, gpus, name):
    log = "2024-04-04 10:56:25.510348: W tensorflow/x.cc:2251] Cannot dlopen some GPU libraries. Please install them.\n"
    run = recorded.job("COMPLETED", exit_code=0, logs={"12_0_log.err": log}, resources={"gpus_per_node": gpus})
    assert explain(run).diagnosis.name == name


SEGMENT = "NCCL WARN Error: failed to open /dev/shm/nccl-a1, error: No such file or directory (2)\n"
OFI = "n1:5:9 [0] nccl_net_ofi_init:1444 NCCL WARN NET/OFI Couldn't open CQ. RC: -22, ERROR: Invalid argument\n"


@pytest.mark.parametrize(("log", "name"), [
    (SEGMENT, "nccl-shared-memory-peer"),
    (f"Error: failed to extend /dev/shm/nccl-a1, error: No space left\n{SEGMENT}", "nccl-shared-memory"),
    (OFI, "nccl-plugin"),
    (f"n1:5:9 [0] NCCL INFO NET/OFI Selected Provider is efa\n{OFI}", "nccl-efa"),
])  # fmt: skip
def test_lines_around_a_message_decide_between_its_causes(recorded, log, name):
    explanation = explain(recorded.job("FAILED", exit_code=1, logs={"12_0_log.err": log}))
    assert explanation.diagnosis.name == name


@pytest.mark.parametrize(("launcher", "name"), [("srun", "wrong-mpi-type"), ("mpiexec", "wrong-launcher")])
def test_the_launcher_decides_why_ranks_do_not_find_each_other(recorded, launcher, name):
    log = "error: MPI started 1 rank where the job has 2: site a, launcher x, MPI library MPICH 5.0.2\n"
    explanation = explain(recorded.job("FAILED", exit_code=2, logs={"12_0_log.err": log}, launcher=launcher))
    assert [explanation.diagnosis.name, *(other.name for other in explanation.others)] == [name]


LOST_PEER = """[1612349.678901] [n2:4242 :0]  sock.c:344  UCX  ERROR recv(fd=63) failed: Connection reset by peer
[n2:4242] pml_ucx.c:419  Error: ucp_ep_create(proc=0) failed: Endpoint is not connected
[n2:4242] *** An error occurred in MPI_Recv
"""
OFI_POLL = """Abort(1007228687) on node 1 (rank 1 in comm 0): Fatal error in PMPI_Recv: Other MPI error, error stack:
MPIDI_OFI_handle_cq_error(1042): OFI poll failed (ofi_events.c:1042:MPIDI_OFI_handle_cq_error:Connection reset by peer)
"""
QUOTA = "cp: error writing 'a': Disk quota exceeded\n"
ABORT = """MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD
with errorcode 1.
"""


@pytest.mark.parametrize("lost", [LOST_PEER, OFI_POLL], ids=["ucx", "ofi"])
@pytest.mark.parametrize(
    ("log", "name"), [(OWN, "traceback"), (QUOTA, "quota"), ("", None)], ids=["own", "quota", "none"]
)
def test_a_lost_connection_is_the_cause_only_without_another_one(recorded, lost, log, name):
    explanation = explain(recorded.job("FAILED", exit_code=1, logs={"12_0_log.err": log + lost}))
    assert explanation.diagnosis.name == (name or {LOST_PEER: "ucx-peer-closed", OFI_POLL: "fabric-error"}[lost])


def test_an_exception_after_a_lost_connection_is_its_consequence(recorded):
    log = LOST_PEER + OWN.replace(
        "ValueError: sample 17 has no label", "mpi4py.MPI.Exception: MPI_ERR_OTHER: known error"
    )
    explanation = explain(recorded.job("FAILED", exit_code=1, logs={"12_0_log.err": log}))
    assert explanation.diagnosis.name == "ucx-peer-closed"


def test_a_report_of_the_launcher_follows_the_error_before_it(recorded):
    log = f"ValueError: sample 17 has no label\n{ABORT}"
    explanation = explain(recorded.job("FAILED", exit_code=1, logs={"12_0_log.err": log}, launcher="mpirun"))
    assert explanation.diagnosis.name == "exception-without-traceback"
