"""One rank leaves early or stays away, in the way that the first argument names, while the others wait for it."""

import os
import signal
import sys
import time
from types import SimpleNamespace

import hpcrun.train
from hpcrun.train.ranks import failure
from hpcrun.train.ranks.agreement import require_agreement
from hpcrun.train.ranks.world import world

how = sys.argv[1]
if how != "-":  # what fails here has nothing to do with TensorFlow, which takes seconds to start
    sys.modules["hpcrun.train.ranks.device"] = SimpleNamespace(bind_device=lambda _: "no device")  # type: ignore[assignment]
if how == "singletons":  # what a wrong srun --mpi= does: every rank believes that it is alone
    for name in [name for name in os.environ if name.startswith("PMI")]:
        del os.environ[name]


def hang():
    while True:
        time.sleep(0.1)


def fail():
    if "HPCRUN_RUN_DIR" in os.environ and "HPCRUN_RANK" not in os.environ:  # rank.sh gives ranks their logs
        os.environ["HPCRUN_RANK"] = str(rank)
        os.dup2(os.open(f"{os.environ['HPCRUN_RUN_DIR']}/logs/rank-{rank}.log", os.O_CREAT | os.O_WRONLY), 2)
    match how:
        case "raise" | "second":
            raise ValueError("a bug in the script")
        case "raise SystemExit":
            raise SystemExit(4)
        case "refuse":
            raise hpcrun.train.HpcrunError("this cannot be", hint="do that")
        case "exit" | "end":
            sys.exit(3 if how == "exit" else 0)
        case "os._exit":
            time.sleep(rank * 0.3 if where == "all" else 0)
            os._exit(0)
        case "interrupt" | "kill" | "stop":
            os.kill(os.getpid(), {"interrupt": signal.SIGINT, "kill": signal.SIGKILL, "stop": signal.SIGSTOP}[how])
        case "hang":
            hang()


if how in {"early", "never"} and os.environ["PMI_RANK"] == "1":
    failure.install_hooks()
    if how == "early":
        raise hpcrun.train.HpcrunError("too early")
    hang()

hpcrun.train.init()
rank, size = hpcrun.train.rank(), hpcrun.train.size()
if how != "-":
    print(f"PID {os.getpid()}", flush=True)
where = sys.argv[2] if len(sys.argv) > 2 else str(size - 1)
if where == "all" or int(where) == rank:
    fail()
if how == "crossed" and hpcrun.train.is_chief():
    hpcrun.train.allreduce(1)
elif how == "shapes":
    hpcrun.train.allreduce([1.0] * (3 + rank // 2))
elif how == "second":
    time.sleep(0.3)
    raise KeyError("late")
if how == "crossed kinds" and rank:  # another kind of collective: MPI cannot tell, only the others can
    world().comm.allgather(rank)
if how == "disagree":
    same = {"epochs": 3, "nan": float("nan"), "classes": {"b", "a"}}
    require_agreement(same)
    require_agreement(same | {"batch size": 32 if rank == 1 else 64} | ({"text": "x" * 500} if rank < 2 else {}))
hpcrun.train.barrier()
