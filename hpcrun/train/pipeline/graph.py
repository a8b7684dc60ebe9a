"""A Keras model as a list of calls of layers and operations, in an order in which they can be computed.

Nested functional models that are called once are replaced by their calls, so that they can be cut inside.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import keras
from keras.src.models.functional import Functional, operation_fn  # Keras does not export operation_fn

from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hpcrun.train.types import Data, Keras

STAGE_MARK = "_hpcrun_stage"
"""Attribute of a Keras node that was called inside `stage_scope.stage`."""


class Call(NamedTuple):
    """A call of a layer or an operation, or a cast at the entry of a nested model.

    Attributes:
        name: Name of the layer or the operation.
        operation: The Keras operation; None for a cast.
        arguments: The symbolic arguments of the call; None for a cast.
        inputs: The tensors that the call takes.
        outputs: The tensors that the call returns, flat.
        mark: The stage that the script has chosen; None if it has not.
    """

    name: str
    operation: Keras
    arguments: Keras
    inputs: tuple[keras.KerasTensor, ...]
    outputs: tuple[keras.KerasTensor, ...]
    mark: int | None

    @property
    def variables(self) -> list[keras.Variable]:
        """The variables of the layer; none for an operation."""
        return list(getattr(self.operation, "variables", ()))


class Graph(NamedTuple):
    """The calls of a model.

    Attributes:
        model: The Keras model.
        functional: The model, or the functional model inside of a sequential one.
        inputs: The model's input tensors, flat.
        calls: The calls, each after those whose results it takes.
        outputs: The model's output tensors, flat.
        aliases: For each output of a nested model, the tensor inside of it, by identity.
    """

    model: keras.Model
    functional: Functional
    inputs: list[keras.KerasTensor]
    calls: list[Call]
    outputs: list[keras.KerasTensor]
    aliases: dict[int, keras.KerasTensor]

    def resolve(self, tensor: keras.KerasTensor) -> keras.KerasTensor:
        """Return the tensor that a call or an input of this graph produces, for a tensor of any nested model."""
        while id(tensor) in self.aliases:
            tensor = self.aliases[id(tensor)]
        return tensor


def functional_of(model: Keras) -> Functional | None:
    """Return the functional model of a functional or sequential model; None for others, also subclassed ones."""
    if isinstance(model, keras.Sequential):
        return model._functional if type(model).call is keras.Sequential.call else None  # noqa: SLF001
    return model if isinstance(model, Functional) and type(model).call is Functional.call else None


def trace_model(model: keras.Model) -> Graph:
    """Return the calls of a functional or sequential model.

    Args:
        model: A Keras model with known inputs.

    Raises:
        HpcrunError: The model has a `call` of its own, or no inputs yet.
    """
    functional = functional_of(model)
    if functional is None:
        if isinstance(model, keras.Sequential) and type(model).call is keras.Sequential.call:
            raise HpcrunError(
                f"the Sequential model {model.name!r} has no inputs yet, so it cannot be cut into stages",
                hint="give its first layer a keras.Input, or call build with the shape of a batch",
            )
        raise HpcrunError(
            f"{type(model).__name__} defines its own call(), which cannot be cut into stages",
            hint="write the model as keras.Model(inputs, outputs) or keras.Sequential; layers may have any call()",
        )
    graph = Graph(model, functional, list(functional.inputs), [], list(functional.outputs), {})
    _add_calls(graph, functional, None)
    return graph._replace(outputs=[graph.resolve(tensor) for tensor in graph.outputs])


def _add_calls(graph: Graph, functional: Functional, outer_mark: int | None) -> None:
    nodes = [node for node in _nodes(functional) if not node.is_input]
    input_ids = {id(tensor) for tensor in functional.inputs}
    nodes = [node for node in nodes if not any(id(tensor) in input_ids for tensor in node.outputs)]
    numbers_of_calls = Counter(id(node.operation) for node in nodes)
    for node in nodes:
        mark = getattr(node, STAGE_MARK, None) if outer_mark is None else outer_mark
        inner = functional_of(node.operation) if numbers_of_calls[id(node.operation)] == 1 else None
        if inner is not None and _can_be_flattened(inner, node):
            _enter(graph, inner, node, mark)
            _add_calls(graph, inner, mark)
            outer_outputs = zip(node.outputs, inner.outputs, strict=True)
            graph.aliases.update({id(outer): tensor for outer, tensor in outer_outputs if outer is not tensor})
        else:
            inputs = tuple(map(graph.resolve, node.arguments.keras_tensors))
            outputs = tuple(node.outputs)
            graph.calls.append(Call(node.operation.name, node.operation, node.arguments, inputs, outputs, mark))


def _nodes(functional: Functional) -> Iterator[Keras]:
    """Yield the nodes of a functional model in the order in which Keras computes them."""
    for _, nodes in sorted(functional._nodes_by_depth.items(), reverse=True):  # noqa: SLF001
        yield from nodes


def _can_be_flattened(inner: Functional, node: Keras) -> bool:
    """Return whether a nested model gets one tensor for each of its inputs, and no other argument."""
    outer_tensors = node.arguments.keras_tensors
    flat_arguments = keras.tree.flatten((node.arguments.args, node.arguments.kwargs))
    arguments = [argument for argument in flat_arguments if argument is not None]
    return (
        len(arguments) == len(outer_tensors) == len(inner.inputs)
        and not isinstance(inner._inputs_struct, dict)  # noqa: SLF001  (their order may differ from that of the arguments)
        and all(len(a.shape) == len(b.shape) for a, b in zip(outer_tensors, inner.inputs, strict=True))
    )


def _enter(graph: Graph, inner: Functional, node: Keras, mark: int | None) -> None:
    """Let the inputs of a nested model be the tensors of its call, cast to the dtypes of the inputs, as Keras does."""
    for outer, tensor in zip(node.arguments.keras_tensors, inner.inputs, strict=True):
        if outer.dtype == tensor.dtype:
            if outer is not tensor:
                graph.aliases[id(tensor)] = outer
        else:
            graph.calls.append(Call(f"cast for {inner.name}", None, None, (graph.resolve(outer),), (tensor,), mark))


def compute(graph: Graph, calls: Sequence[Call], tensors: Mapping[int, Data], *, training: bool) -> dict[int, Data]:
    """Compute calls as Keras's functional models do.

    Args:
        graph: The graph of the calls.
        calls: The calls to compute.
        tensors: The values of tensors that are known, by identity of the symbolic tensor.
        training: Whether layers are called for training.

    Returns:
        The values of all tensors, by identity of the symbolic tensor.
    """
    values: dict[int, Any] = dict(tensors)
    for call in calls:
        if call.operation is None:
            results = [keras.ops.cast(values[id(call.inputs[0])], call.outputs[0].dtype)]
        else:
            known = {
                id(tensor): values[id(graph.resolve(tensor))]
                for tensor in call.arguments.keras_tensors
                if id(graph.resolve(tensor)) in values
            }
            arguments, keywords = call.arguments.fill_in(known)
            results = keras.tree.flatten(operation_fn(call.operation, training=training)(*arguments, **keywords))
        values.update({id(tensor): value for tensor, value in zip(call.outputs, results, strict=True)})
    return values
