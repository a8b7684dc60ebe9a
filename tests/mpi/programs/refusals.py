"""Checks of errors that all ranks raise together, with the same message."""

# ruff: noqa: E402  (hpcrun.train.init() comes before Keras, as in every script)

import json
import sys

import hpcrun.train

hpcrun.train.init()

import keras
import numpy as np
from cases import network
from checks import assert_refused, run_checks

rank = hpcrun.train.rank()
allreduce = hpcrun.train.allreduce
one = np.ones(3)


def check_loss_scale_around_hpcruns_optimizer():
    optimizer = hpcrun.train.Optimizer(keras.optimizers.SGD(0.1))
    assert_refused("hpcrun.train.Optimizer(LossScaleOptimizer(", keras.optimizers.LossScaleOptimizer, optimizer)
    right = hpcrun.train.Optimizer(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=2.0))
    weight = keras.Variable(1.0)
    for gradient in (
        2.0 * (1 + rank),
        np.inf if rank else 2.0,
    ):  # the second overflows on a rank, and is skipped on all
        right.apply([keras.ops.convert_to_tensor(gradient, "float32")], [weight])
    np.testing.assert_allclose(float(weight), 1 - 0.1 * 1.5)


def check_allreduce_of_different_arrays():
    for others, chiefs, words in (
        ([one, one, one], [one, one], "rank 0: allreduce() of float64[2, 3] at checks.py:"),
        ([one, np.ones(4)], [one, one], "rank 1: allreduce() of list of 2: float64[3], float64[4] at checks.py:"),
        (one.astype("float32"), one, "rank 1: allreduce() of float32[3] at checks.py:"),
        ([None, 1], 1.0, "rank 1: allreduce() of object[2] at checks.py:"),
    ):
        assert_refused(words, allreduce, others if rank else chiefs)
        assert_refused("HINT: give allreduce() an array of one shape and dtype", allreduce, others if rank else chiefs)


def check_allreduce_of_other_types():
    for given, words in (
        ([one, np.ones(4)], "allreduce() got list of 2: float64[3], float64[4]\nHINT: give one array"),
        ([1.0, [2.0]], "allreduce() got list of 2: float, list\nHINT"),
        ([None, 1], "allreduce() got object[2]\nHINT"),
        (None, "allreduce() got NoneType\nHINT"),
        ("text", "allreduce() got str\nHINT"),
    ):
        assert_refused(words, allreduce, given)
    assert allreduce(one).tolist() == [2.0] * 3  # all ranks are still synchronized


def check_clone_model():
    model = hpcrun.train.Model(network())
    assert_refused("keras.models.clone_model(model.keras_model)", keras.models.clone_model, model)
    assert keras.models.clone_model(model.keras_model).count_params() == model.count_params()
    assert model.from_config(model.get_config()).count_params() == model.count_params()


failed = run_checks(__name__)
print("RESULT", json.dumps(failed), flush=True)
sys.exit(len(failed))
