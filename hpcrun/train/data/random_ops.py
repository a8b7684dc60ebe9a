"""Detection of `tf.data` functions that draw different random numbers on each rank, with a message to the user.

Three kinds of operations draw random numbers. Stateful operations (`tf.random.uniform`, `tf.image.random_*`) have two
seeds, both 0 if unseeded. Keras layers and `tf.random.Generator` advance a variable. Stateful operations and generators
draw the next number for each sample, so that in a parallel map the numbers depend on the timing of threads. Stateless
operations depend only on their arguments. A Python function (`tf.numpy_function`, `tf.py_function`) counts as drawing
random numbers if its code contains the name of a random function.
"""

from __future__ import annotations

import inspect
from contextlib import suppress
from types import CodeType
from typing import TYPE_CHECKING

from hpcrun.run.job import print_line
from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tensorflow.core.framework import node_def_pb2

    from hpcrun.train.data.pipeline_steps import PipelineStep

_RANDOM_NAMES = frozenset({
    "random", "default_rng", "rand", "randn", "randint", "integers", "normal", "standard_normal", "uniform", "choice",
    "permutation", "shuffle",
})  # fmt: skip
"""Names of functions that draw random numbers, of NumPy, of Python's module random, or of a generator."""

_warned: list[bool] = []


def generator_states(pipeline: Iterable[PipelineStep]) -> list[list[object]]:
    """Return the states of the random generators that a pipeline's functions use, one list per step."""
    return [_step_states(step) for step in pipeline]


def draws_differ(step: PipelineStep, *, are_states_equal: bool) -> bool:
    """Return whether the functions of a step draw different random numbers on each rank.

    Args:
        step: A step of a `tf.data` pipeline.
        are_states_equal: Whether the step's generators have the same state on all ranks.
    """
    parallel = step.name.startswith("Parallel") or step.any_node(lambda node: node.op.startswith("Parallel"))
    if step.any_node(
        lambda node: _is_stateful(node) and (parallel or not (node.attr["seed"].i or node.attr["seed2"].i))
    ):
        return True
    return step.any_node(_calls_random_function) or (_uses_generator(step) and (parallel or not are_states_equal))


def warn_about_random_ops() -> None:
    """Print once that a pipeline's functions draw different random numbers on each rank."""
    if not _warned and world().rank == 0:
        print_line(
            "INFO: the tf.data.Dataset draws random numbers in a map, without a seed or with num_parallel_calls: each "
            "rank draws different ones, so results vary from run to run and with the number of ranks\n"
            "HINT: draw them from the data: random = tf.data.Dataset.random(seed=1, rerandomize_each_iteration=True); "
            "tf.data.Dataset.zip(data, random).map(f), with tf.random.stateless_* or tf.image.stateless_random_*(..., "
            "seed=[number, 0]) in f; tf.keras.utils.set_random_seed seeds maps without num_parallel_calls alone"
        )
    _warned[:] = [True]


def _step_states(step: PipelineStep) -> list[object]:
    states: list[object] = []
    if _uses_generator(step):
        for function in step.dataset._functions():  # noqa: SLF001
            with suppress(AssertionError):  # TensorFlow raises AssertionError for a deleted variable
                variables = function.function.graph.variables
                states += [v.numpy().tolist() for v in variables if v.dtype.is_integer and v.shape.num_elements() < 10]
    return states


def _is_stateful(node: node_def_pb2.NodeDef) -> bool:
    return {"seed", "seed2"} <= set(node.attr)


def _calls_random_function(node: node_def_pb2.NodeDef) -> bool:
    if node.op not in {"PyFunc", "PyFuncStateless", "EagerPyFunc"}:
        return False
    from tensorflow.python.ops import script_ops

    registered_function = script_ops._py_funcs._funcs.get(node.attr["token"].s.decode())  # noqa: SLF001  (there is no public function)
    function = inspect.unwrap(getattr(registered_function, "_func", registered_function))
    return _uses_random_name(getattr(function, "__code__", None))


def _uses_random_name(code: CodeType | None) -> bool:
    if code is None:
        return False
    inner_code = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return not _RANDOM_NAMES.isdisjoint(code.co_names) or any(map(_uses_random_name, inner_code))


def _uses_generator(step: PipelineStep) -> bool:
    if step.any_node(lambda node: node.op.startswith("Rng")):
        return True
    is_stateless = step.any_node(lambda node: node.op.startswith("StatelessRandom"))
    return is_stateless and step.any_node(lambda node: node.op.startswith("Assign"))
