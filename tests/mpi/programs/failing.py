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

mode = sys.argv[1]
if mode != "-":  # what fails here has nothing to do with TensorFlow, which takes seconds to start
    sys.modules["hpcrun.train.ranks.device"] = SimpleNamespace(bind_device=lambda _: "no device")  # type: ignore[assignment]
if mode == "singletons":  # what a wrong srun --mpi= does: every rank believes that it is alone
    for name in [name for name in os.environ if name.startswith("PMI")]:
        del os.environ[name]


def hang():
    while True:
        time.sleep(0.1)


def fail():
    if "HPCRUN_RUN_DIR" in os.environ and "HPCRUN_RANK" not in os.environ:  # rank.sh gives ranks their logs
        os.environ["HPCRUN_RANK"] = str(rank)
        os.dup2(os.open(f"{os.environ['HPCRUN_RUN_DIR']}/logs/rank-{rank}.log", os.O_CREAT | os.O_WRONLY), 2)
    match mode:
        case "raise" | "second":
            raise ValueError("a bug in the script")
        case "raise SystemExit":
            raise SystemExit(4)
        case "refuse":
            raise hpcrun.train.HpcrunError("this cannot be", hint="do that")
        case "exit" | "end":
            sys.exit(3 if mode == "exit" else 0)
        case "os._exit":
            time.sleep(rank * 0.3 if where == "all" else 0)
            os._exit(0)
        case "interrupt" | "kill" | "stop":
            os.kill(os.getpid(), {"interrupt": signal.SIGINT, "kill": signal.SIGKILL, "stop": signal.SIGSTOP}[mode])
        case "hang":
            hang()


if mode in {"early", "never"} and os.environ["PMI_RANK"] == "1":
    failure.install_hooks()
    if mode == "early":
        raise hpcrun.train.HpcrunError("too early")
    hang()

hpcrun.train.init()
rank, size = hpcrun.train.rank(), hpcrun.train.size()
if mode != "-":
    print(f"PID {os.getpid()}", flush=True)
where = sys.argv[2] if len(sys.argv) > 2 else str(size - 1)
if where == "all" or int(where) == rank:
    fail()
if mode == "crossed" and hpcrun.train.is_chief():
    hpcrun.train.allreduce(1)
elif mode == "shapes":
    hpcrun.train.allreduce([1.0] * (3 + rank // 2))
elif mode == "second":
    time.sleep(0.3)
    raise KeyError("late")
if mode == "crossed kinds" and rank:  # another kind of collective: MPI cannot tell, only the others can
    world().comm.allgather(rank)
if mode == "disagree":
    same = {"epochs": 3, "nan": float("nan"), "classes": {"b", "a"}}
    require_agreement(same)
    require_agreement(same | {"batch size": 32 if rank == 1 else 64} | ({"text": "x" * 500} if rank < 2 else {}))
hpcrun.train.barrier()
