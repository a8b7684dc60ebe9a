"""Cuts of a model into pipeline stages."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("keras")

import keras
import numpy as np

import hpcrun.train
from hpcrun.errors import HpcrunError
from hpcrun.train.pipeline.cut import (
    MEMORY_TOLERANCE,
    allowed_cuts,
    apply_marks,
    balance,
    best_cut,
    crossing_tensors,
    cuts_after,
    require_cuts,
)
from hpcrun.train.pipeline.graph import compute, trace_model

layers = keras.layers


def cost(cuts, seconds, memory):
    times = [value / sum(seconds) for value in balance(cuts, seconds)]
    sizes = [value / sum(memory) / MEMORY_TOLERANCE for value in balance(cuts, memory)]
    return max(times + sizes)


@given(st.data(), st.integers(2, 4))
def test_the_cut_is_the_best_one(data, stages):
    calls = data.draw(st.integers(stages, 9))
    values = st.lists(st.integers(1, 100), min_size=calls, max_size=calls)
    seconds, memory = data.draw(values), data.draw(values)
    allowed = sorted(data.draw(st.sets(st.integers(1, calls - 1), min_size=stages - 1)))
    chosen = best_cut(allowed, seconds, memory, {}, stages)
    best = min(cost(cuts, seconds, memory) for cuts in combinations(allowed, stages - 1))
    assert set(chosen) <= set(allowed)
    assert cost(chosen, seconds, memory) == pytest.approx(best)


def test_of_equally_fast_cuts_the_one_that_sends_least_is_taken():
    assert best_cut([1, 2, 3], [4, 0, 0, 4], [1, 1, 1, 1], {1: 30, 2: 10, 3: 20}, 2) == [2]


def branching_model():
    first, second = keras.Input((8,)), keras.Input((4,))
    left = layers.Dense(8, name="left")(first)
    right = layers.Dense(8, name="right")(second)
    joined = layers.Add(name="join")([left, right])
    block = keras.Sequential([layers.Dense(8, name="inside"), layers.Dense(8, name="end")], name="block")
    shared = layers.Dense(8, name="shared")
    skipped = layers.Concatenate(name="skip")([shared(shared(block(joined))), left])
    return keras.Model([first, second], [layers.Dense(1, name="out")(skipped), left])


def test_a_graph_computes_what_its_model_does():
    model = branching_model()
    graph = trace_model(model)
    assert [call.name for call in graph.calls][-6:] == ["inside", "end", "shared", "shared", "skip", "out"]
    x = [np.random.default_rng(0).normal(size=(5, size)).astype("float32") for size in (8, 4)]
    inputs = {id(tensor): keras.ops.convert_to_tensor(value) for tensor, value in zip(graph.inputs, x, strict=True)}
    values = compute(graph, graph.calls, inputs, training=False)
    for tensor, expected in zip(graph.outputs, model(x), strict=True):
        np.testing.assert_allclose(values[id(tensor)], expected, rtol=1e-6)


def test_a_mask_crosses_every_cut():
    words = keras.Input((6,), dtype="int32")
    x = layers.Embedding(10, 8, mask_zero=True)(words)
    x = layers.Dense(8)(layers.LSTM(8, return_sequences=True)(x))
    model = keras.Model(words, layers.Dense(1)(layers.LSTM(8)(x)))
    graph = trace_model(model)
    given = keras.ops.convert_to_tensor(np.array([[3, 1, 4, 0, 0, 0], [1, 5, 9, 2, 0, 0], [6, 5, 3, 5, 8, 9]]))
    for cut in allowed_cuts(graph):
        tensors = {id(graph.inputs[0]): given}
        values = compute(graph, graph.calls[:cut], tensors, training=False)
        sent = {id(tensor): np.asarray(values[id(tensor)]) for tensor in crossing_tensors(graph, cut)}
        received = {number: keras.ops.convert_to_tensor(value) for number, value in sent.items()}
        values = compute(graph, graph.calls[cut:], tensors | received, training=False)
        np.testing.assert_allclose(values[id(graph.outputs[0])], model(given), rtol=1e-6)


def test_shared_layers_stay_together_and_outputs_travel_on():
    graph = trace_model(branching_model())
    names = [call.name for call in graph.calls]
    assert names.index("shared") + 1 not in allowed_cuts(graph)
    assert names.index("inside") + 1 in allowed_cuts(graph)
    left = graph.calls[names.index("left")].outputs[0]
    for position in range(names.index("left") + 1, len(names)):
        assert left in crossing_tensors(graph, position)  # the skip connection, and then the output


def test_too_many_stages_are_refused_with_the_shared_layer():
    inputs = keras.Input((8,))
    shared = layers.Dense(8, name="twice")
    graph = trace_model(keras.Model(inputs, shared(layers.ReLU()(shared(inputs)))))
    with pytest.raises(HpcrunError, match="can be cut into 1 stage, not into 2: 'twice' must stay in one stage"):
        require_cuts(graph, 2)


def test_a_tied_embedding_is_refused_with_both_layers():
    class Logits(keras.layers.Layer):
        def __init__(self, embedding):
            super().__init__(name="logits")
            self.embedding = embedding

        def call(self, x):
            return keras.ops.matmul(x, keras.ops.transpose(self.embedding.embeddings))

        def compute_output_spec(self, x):  # saves tracing the call, for which TensorFlow searches all modules
            return keras.KerasTensor((*x.shape[:-1], 20))

    words, embedding = keras.Input((5,), dtype="int32"), layers.Embedding(20, 8, name="words")
    graph = trace_model(keras.Model(words, Logits(embedding)(layers.Dense(8)(embedding(words)))))
    with pytest.raises(HpcrunError, match="not into 2: 'words' and 'logits' must stay in one stage"):
        require_cuts(graph, 2)


def test_names_choose_the_cuts():
    graph = trace_model(branching_model())
    names = [call.name for call in graph.calls]
    assert cuts_after(graph, ["inside"]) == [names.index("inside") + 1]
    assert cuts_after(graph, ["block"]) == [names.index("end") + 1]
    with pytest.raises(HpcrunError, match=r"'nowhere', which the model .* does not call"):
        cuts_after(graph, ["nowhere"])
    with pytest.raises(HpcrunError, match="not in the order of the model"):
        cuts_after(graph, ["end", "inside"])
    with pytest.raises(HpcrunError, match="cuts after 'out', the last layer"):
        cuts_after(graph, ["out"])


def test_the_script_can_place_layers():
    inputs = keras.Input((8,))
    first = layers.Dense(8, name="first")(inputs)
    with hpcrun.train.stage(1):
        second = layers.Dense(8, name="second")(first)
    with hpcrun.train.stage(0):
        also_first = layers.Dense(8, name="also_first")(inputs)
    graph, cuts = apply_marks(trace_model(keras.Model(inputs, layers.Add(name="sum")([second, also_first]))))
    assert cuts == [2]
    assert {call.name for call in graph.calls[:2]} == {"first", "also_first"}
    assert [call.name for call in graph.calls[2:]] == ["second", "sum"]


def test_stages_out_of_order_are_refused():
    inputs = keras.Input((8,))
    with hpcrun.train.stage(1):
        first = layers.Dense(8)(inputs)
    with hpcrun.train.stage(0):
        second = layers.Dense(8, name="back")(first)
    with pytest.raises(HpcrunError, match="'back' is on stage 0, and takes the result of stage 1"):
        apply_marks(trace_model(keras.Model(inputs, second)))


def test_models_that_cannot_be_cut_are_refused():
    class Subclassed(keras.Model):
        def call(self, x):
            return x

    with pytest.raises(HpcrunError, match=r"Subclassed defines its own call\(\)"):
        trace_model(Subclassed())
    with pytest.raises(HpcrunError, match="has no inputs yet"):
        trace_model(keras.Sequential([layers.Dense(1)]))
