"""Plans of pipeline stages, of models with and without memory for their weights."""

from functools import partial
from itertools import combinations

import pytest

pytest.importorskip("tensorflow")

import keras
import numpy as np
import tensorflow as tf

import hpcrun.train
from hpcrun.errors import HpcrunError

layers = keras.layers


def equal_blocks(blocks, width=256):
    keras.utils.set_random_seed(1)
    return keras.Sequential(
        [keras.Input((width,)), *(layers.Dense(width, activation="relu", name=f"block{i}") for i in range(blocks))]
    )


def test_a_plan_names_the_stages_and_their_costs():
    plan = hpcrun.train.plan(equal_blocks(4), ["block1"], micro_batches=2, batch_size=8)
    assert [(stage.first, stage.last) for stage in plan.stages] == [("block0", "block1"), ("block2", "block3")]
    assert [stage.parameters for stage in plan.stages] == [2 * (256 * 256 + 256)] * 2
    one_micro_batch = 2 * 4 * 256 * 4  # two layers, 4 samples
    assert [stage.activation_bytes for stage in plan.stages] == [2 * one_micro_batch, one_micro_batch]
    assert plan.stages[1].memory_bytes == 4 * 4 * plan.stages[1].parameters + one_micro_batch
    assert 0.3 < plan.efficiency <= 0.68  # 2 / 3 with equal times
    text = str(plan)
    assert "block2       block3" in text
    assert "131,584" in text
    assert "1f1b, 2 micro-batches of 4 samples" in text


def test_lazy_weights_take_no_memory_and_get_the_same_values():
    expected = equal_blocks(2).get_weights()
    with hpcrun.train.lazy_weights():
        lazy = equal_blocks(2)
    assert all(variable._value is None for variable in lazy.variables)
    plan = hpcrun.train.plan(lazy, 2, batch_size=16)
    assert len(plan.stages) == 2
    assert all(variable._value is None for variable in lazy.variables)
    model = hpcrun.train.Model(lazy)
    for weight, value in zip(model.get_weights(), expected, strict=True):
        np.testing.assert_array_equal(weight, value)


def test_measured_cuts_are_close_to_the_best():
    inputs = keras.Input((16, 16, 8))
    x = layers.Conv2D(32, 3, padding="same")(inputs)
    for filters in (32, 64, 32):
        x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
        x = layers.BatchNormalization()(x)
    model = keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))
    from hpcrun.train.pipeline.cut import allowed_cuts, balance
    from hpcrun.train.pipeline.graph import trace_model
    from hpcrun.train.pipeline.measurement import measure

    plan = hpcrun.train.plan(model, 3, micro_batches=4, batch_size=64)
    graph = trace_model(model)
    measured = [measure(graph, 16) for _ in range(2)]  # the shorter times are those on a less busy machine
    seconds = np.min([np.add(costs.forward, costs.backward) for costs in measured], axis=0)
    names = [call.name for call in graph.calls]
    chosen = [names.index(stage.last) + 1 for stage in plan.stages[:-1]]
    best = min(max(balance(cuts, seconds)) for cuts in combinations(allowed_cuts(graph), 2))
    assert max(balance(chosen, seconds)) < 1.15 * best


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"stages": 0}, "stages=0"),
        ({"stages": 5}, "can be cut into 4 stages, not into 5"),
        ({"stages": 2, "micro_batches": 0}, "micro_batches=0"),
        ({"stages": True}, "stages=True"),
        ({"stages": 2, "micro_batches": "4"}, "micro_batches='4'"),
        ({"stages": 2, "schedule": "zigzag"}, "schedule='zigzag'"),
        ({"stages": 2, "recompute": "yes"}, "recompute='yes'"),
        ({"stages": 2, "batch_size": 0}, "batch_size=0"),
        ({"stages": 2, "batch_size": "8"}, "batch_size='8'"),
        ({"stages": 2, "replicas": 0, "batch_size": 8}, "replicas=0"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(HpcrunError, match=message):
        hpcrun.train.plan(equal_blocks(4), **arguments)


def test_numbers_of_numpy_are_numbers():
    stages, micro_batches, samples = np.array([2, 4, 8])
    plan = hpcrun.train.plan(equal_blocks(2), stages, micro_batches, batch_size=samples)
    assert (len(plan.stages), plan.micro_batches, plan.micro_batch_size) == (2, 4, 2)


def test_a_model_without_layers_is_refused():
    inputs = keras.Input((2,))
    with pytest.raises(HpcrunError, match="has no layers"):
        hpcrun.train.plan(keras.Model(inputs, inputs), 1)


@pytest.mark.parametrize(
    ("marks", "stages", "message"),
    [
        ((0, 0), 2, "stages=2, and the script places layers on 1 stage\n"),
        ((0, 1), ["first"], r"stages=\['first'\], and the script places layers on 2 stages"),
    ],
)
def test_stages_of_the_script_that_do_not_fit_the_arguments_are_refused(marks, stages, message):
    inputs = x = keras.Input((2,))
    for mark, name in zip(marks, ("first", "second"), strict=True):
        with hpcrun.train.stage(mark):
            x = layers.Dense(2, name=name)(x)
    with pytest.raises(HpcrunError, match=message):
        hpcrun.train.plan(keras.Model(inputs, x), stages)


@pytest.mark.parametrize("number", [-1, 1.0, True, "0"])
def test_the_number_of_a_stage_is_a_whole_number(number):
    with pytest.raises(HpcrunError, match=f"number={number!r}"), hpcrun.train.stage(number):
        pass


def test_models_with_steps_of_their_own_are_refused():
    class Custom(keras.Model):
        def train_step(self, data):
            return super().train_step(data)

    inputs = keras.Input((2,))
    model = Custom(inputs, layers.Dense(1)(layers.Dense(2)(inputs)))
    with pytest.raises(HpcrunError, match=r"Custom defines its own train_step\(\)"):
        hpcrun.train.plan(model, 2)


class Holder:
    scale = keras.Variable(2.0, name="scale")


def scaled(x, scale=Holder.scale):
    return x * scale


def scaled_by_another_function(x):
    return scaled(x)


class Scaler:
    def __init__(self):
        self.factor = Holder.scale

    def __call__(self, x):
        return self.multiply(x)

    def multiply(self, x):
        return x * self.factor


class Module(tf.Module):
    def __init__(self):
        super().__init__()
        self.factor = tf.Variable(2.0, name="scale")

    def __call__(self, x):
        return x * self.factor


scaler, module = Scaler(), Module()


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (lambda x, scale=Holder.scale: x * scale, {}),
        (lambda x: x * Holder.scale, {}),
        (lambda x: next(part * Holder.scale for part in [x]), {}),
        (scaled_by_another_function, {}),
        (partial(lambda x, by: x * by, by=Holder.scale), {}),
        (lambda x, by: x * by, {"by": Holder.scale}),
        (scaler, {}),
        (lambda x: scaler(x), {}),  # noqa: PLW0108
        (scaler.multiply, {}),
        (module, {}),
        (tf.function(lambda x: x * Holder.scale.value), {}),
    ],
    ids=[
        "default", "attribute", "inner function", "another function", "partial", "arguments", "object",
        "call of an object", "method", "module", "tf.function",
    ],
)  # fmt: skip
def test_a_lambda_with_hidden_state_is_refused(function, arguments):
    inputs = keras.Input((2,))
    hidden = layers.Lambda(function, arguments=arguments, output_shape=(2,), name="hidden")(layers.Dense(2)(inputs))
    with pytest.raises(HpcrunError, match=r"'hidden' uses the variable 'scale(:0)?'"):
        hpcrun.train.plan(keras.Model(inputs, hidden), 2)


def test_a_lambda_with_a_layer_is_refused_and_one_without_state_is_not():
    inputs, dense = keras.Input((2,)), layers.Dense(2, name="inside")
    stateless = layers.Lambda(lambda x: 2 * keras.ops.relu(x))(layers.Dense(2)(inputs))
    assert len(hpcrun.train.plan(keras.Model(inputs, stateless), 2).stages) == 2
    hidden = layers.Lambda(lambda x: dense(x), name="hidden")(stateless)  # noqa: PLW0108
    with pytest.raises(HpcrunError, match="'hidden' uses the layer 'inside'"):
        hpcrun.train.plan(keras.Model(inputs, hidden), 2)


def test_layers_that_a_lambda_has_not_called_yet():
    inputs, heads = keras.Input((2,)), [keras.Sequential([layers.Dense(2)], name="head")]
    joined = layers.Concatenate()  # has no weights
    x = layers.Lambda(lambda x: joined([x, x]), output_shape=(4,))(layers.Dense(2)(inputs))
    assert len(hpcrun.train.plan(keras.Model(inputs, x), 2).stages) == 2
    hidden = layers.Lambda(lambda x: 2 * heads[0](x), output_shape=(2,), name="hidden")(x)
    with pytest.raises(HpcrunError, match="'hidden' uses the layer 'head'"):
        hpcrun.train.plan(keras.Model(inputs, hidden), 2)


def test_only_models_have_plans():
    with pytest.raises(HpcrunError, match=r"hpcrun.train.plan got keras\..*Dense, which is not a model"):
        hpcrun.train.plan(layers.Dense(2), 2)
