"""Checks of the codec that `--compress auto` chooses, on a few ranks; failures are printed."""

import contextlib
import io
import json
import os
import sys
import time

import keras
import numpy as np
from cases import compiled, data, network
from checks import assert_refused, run_checks

import hpcrun.train
from hpcrun.train import result
from hpcrun.train.gradients.codec_choice import CANDIDATES, Choice
from hpcrun.train.gradients.codecs import CODECS
from hpcrun.train.gradients.cost_model import measure_codec
from hpcrun.train.gradients.powersgd import PowerSgdAllReduce
from hpcrun.train.gradients.reducer import Reducer
from hpcrun.train.rank_state import rank_state, restore_rank_state
from hpcrun.train.ranks.world import world

os.environ.update(HPCRUN_COMPRESS="auto", HPCRUN_SHARED_MEMORY="0")
hpcrun.train.init()
rank, size, comm = hpcrun.train.rank(), hpcrun.train.size(), world().comm
STEPS = 16  # the codec is chosen at the last of them


class SlowComm:
    """A communicator whose messages take the time that a link of 100 MB/s would."""

    size, rank = comm.size, comm.rank

    def __getattr__(self, name):
        method = getattr(comm, name)
        if name not in {"Allreduce", "Allgather", "Alltoall"}:
            return method

        def slow(*buffers):
            method(*buffers)
            time.sleep(max(getattr(buffer, "nbytes", 0) for buffer in buffers) / 1e8)  # the link itself

        return slow


def steps(reducer, shape, seconds=0.0, count=STEPS):
    """Return the last sum of some steps, the output of the reducer, and the gradients' mean."""
    gradient = np.random.default_rng(rank).normal(size=shape).astype("float32")
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        for _ in range(count):
            time.sleep(seconds)  # the computation of a step
            (total,) = reducer([gradient], 1 / size)
    return total, output.getvalue(), comm.allreduce(gradient) / size


def check_the_codec_is_chosen_after_the_first_steps():
    os.environ["HPCRUN_FLOAT_FIRST"] = "20"
    try:
        reducer = Reducer(SlowComm())
        before, _, mean = steps(reducer, (1000, 600), count=20)
        after, output, _ = steps(reducer, (1000, 600), count=1)
    finally:
        del os.environ["HPCRUN_FLOAT_FIRST"]
    np.testing.assert_allclose(before, mean, atol=1e-5)
    assert reducer.codec in CANDIDATES, output
    assert np.abs(after - mean).max() > 1e-4  # the codec does not wait for 20 steps again


def check_a_slow_link_gets_a_codec():
    reducer = Reducer(SlowComm())
    assert reducer.codec == "auto"
    before, output, mean = steps(reducer, (1000, 600), count=STEPS - 1)
    np.testing.assert_allclose(before, mean, atol=1e-5)  # unrounded while it measures
    assert (reducer.codec, output) == ("auto", "")
    after, output, _ = steps(reducer, (1000, 600), count=1)
    assert set(comm.allgather(reducer.codec)) == {"powersgd"}
    assert np.abs(after - mean).max() > 0.01
    assert len(set(comm.allgather(after.tobytes()))) == 1
    assert isinstance(reducer.allreduce, PowerSgdAllReduce)
    if rank == 0:
        assert output.startswith("INFO: --compress auto chose powersgd: a step with float32: "), output
        assert output.count("\n") == 1
        assert all(f"{name}: " in output for name in CANDIDATES), output
    else:
        assert output == ""
    assert reducer.sent_bytes_per_step() < 0.1 * 4 * 600_000  # those before the choice do not count
    _, output, _ = steps(reducer, (1000, 600), count=2 * STEPS)
    assert (reducer.codec, output) == ("powersgd", "")


def check_a_codec_that_makes_steps_longer_is_given_up():
    reducer = Reducer(SlowComm())
    steps(reducer, (1000, 600))
    assert reducer.codec == "powersgd"
    after, output, mean = steps(reducer, (1000, 600), seconds=0.2)
    assert set(comm.allgather(reducer.codec)) == {"none"}
    np.testing.assert_allclose(after, mean, atol=1e-5)
    assert ("chose none: a step took " in output) == (rank == 0), output


def check_little_communication_stays_float32():
    reducer = Reducer(comm)
    total, output, mean = steps(reducer, (10, 6), seconds=0.1)
    assert set(comm.allgather(reducer.codec)) == {"none"}
    np.testing.assert_allclose(total, mean, atol=1e-5)
    assert ("chose none: " in output) == (rank == 0), output


def check_a_dry_run_counts_what_a_codec_sends():
    gradients = [np.random.default_rng(rank).normal(size=(500, 400)).astype("float32")]
    for name, codec in CODECS.items():
        cost = measure_codec(codec, gradients, size)
        allreduce = codec(comm)
        reducer = Reducer(comm, allreduce=allreduce)
        reducer(gradients, 1 / size)
        before = allreduce.sent_bytes
        reducer(gradients, 1 / size)
        header = 100 if name == "none" else 0  # the header is part of the message
        assert abs(cost.sent_bytes - (allreduce.sent_bytes - before)) <= header, name
        assert cost.seconds > 0


def check_results_name_the_codec_and_a_checkpoint_keeps_it():
    x, y = data(64)
    model = compiled(hpcrun.train.Model(network()), keras.optimizers.SGD(0.05))
    model.fit(x, y, batch_size=16, epochs=5, verbose=0)
    (reducer,) = model.training_state.reducers
    assert reducer.codec in {"none", *CANDIDATES}
    assert result.gradient_traffic["codec"] == reducer.codec
    assert result.gradient_traffic["codec_reason"] == reducer.codec_reason != ""
    reducer.use_codec(Choice("powersgd", "the reason"))
    states = comm.allgather(rank_state(model))
    arrays = {
        f"rank/{number}/{kind}/{index}": array
        for number, state in enumerate(states)
        for kind, values in state.items()
        for index, array in enumerate(values)
    }
    resumed = compiled(hpcrun.train.Model(network()), keras.optimizers.SGD(0.05))
    (reducer,) = resumed.training_state.reducers
    assert reducer.codec == "auto"
    restore_rank_state(resumed, arrays)
    assert (reducer.codec, reducer.codec_reason) == ("powersgd", "the reason")
    assert isinstance(reducer.allreduce, PowerSgdAllReduce)
    _, output, _ = steps(reducer, (30, 60))
    assert output == ""  # no other choice


def check_refusals():
    for name in ("OVERLAP", "HIERARCHICAL"):
        os.environ[f"HPCRUN_{name}"] = "1"
        try:
            assert_refused(
                f"--compress=auto cannot predict steps with HPCRUN_{name}=1", Reducer, comm, overlap=name[0] == "O"
            )
        finally:
            del os.environ[f"HPCRUN_{name}"]
    os.environ["HPCRUN_VIRTUAL_WORKERS"] = "2"
    try:
        assert_refused("--compress=auto measures real ranks", hpcrun.train.Optimizer, keras.optimizers.SGD(0.1))
    finally:
        del os.environ["HPCRUN_VIRTUAL_WORKERS"]


print("RESULT", json.dumps(run_checks(__name__, sys.argv[1:])), flush=True)
