"""Lookups of an embedding, per sample or once per batch, and the rows of their gradients.

Tokens are looked up per sample: the gradient has one row per token of each sample, and each rank has the rows of its
samples. Positions, ``embedding(arange(length))``, are looked up once per batch: each row of the gradient is a sum over
the samples, and each rank has a partial sum. Keras's optimizers square and clip each row, so that a sum of rows and
separate rows give different results. A lookup is per sample if, in the graph of the training step, the number of rows
grows with the number of samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

    Array = np.ndarray[Any, Any]

_PROBE_BATCH_SIZES = (5, 7)  # two batch sizes; shapes that differ depend on the batch size
_FUNCTION_CALL_OPS = {"PartitionedCall", "StatefulPartitionedCall"}
_PROBE_LENGTH = 11  # assumed size of unknown axes other than the batch axis
_MAX_CONSTANT_VALUES = 2**18  # larger constants can be neither lengths nor positions


@dataclass
class EmbeddingLookups:
    """A sparse gradient, with one `tf.IndexedSlices` per lookup of the embedding.

    Attributes:
        slices: The gradient of each lookup.
        once_per_batch: Whether each lookup happens once per batch (True) or per sample (False).
    """

    slices: list[tf.IndexedSlices]
    once_per_batch: list[bool]


def split_lookups(gradient: tf.IndexedSlices) -> EmbeddingLookups:
    """Split a sparse gradient into its lookups.

    Args:
        gradient: A gradient from a `tf.GradientTape`. An eager gradient counts as one lookup per sample, because its
            origin is unknown.
    """
    import tensorflow as tf

    if tf.is_symbolic_tensor(gradient.indices):
        indices = _split_indices(gradient.indices)
        once_per_batch = [_is_lookup_once_per_batch(indices_of_lookup) for indices_of_lookup in indices]
        if any(once_per_batch):
            if len(indices) == 1:
                return EmbeddingLookups([gradient], once_per_batch)
            values = tf.split(
                gradient.values, [tf.size(indices_of_lookup) for indices_of_lookup in indices], num=len(indices)
            )
            shape = gradient.dense_shape
            pairs = zip(values, indices, strict=True)
            return EmbeddingLookups(
                [tf.IndexedSlices(rows, indices_of_lookup, shape) for rows, indices_of_lookup in pairs], once_per_batch
            )
    return EmbeddingLookups([gradient], [False])


def probe_lengths(tensor: tf.Tensor) -> tuple[int | None, int | None]:
    """Return a tensor's number of elements for each of two batch sizes; None if unknown."""
    small_shape, large_shape = (_ShapeProbe(batch).shape(tensor) for batch in _PROBE_BATCH_SIZES)
    return (
        None if small_shape is None else small_shape.num_elements(),
        None if large_shape is None else large_shape.num_elements(),
    )


def _split_indices(indices: tf.Tensor) -> list[tf.Tensor]:
    """Split indices into the parts that the tape concatenated."""
    op = indices.op
    if op.type == "Identity":
        return _split_indices(op.inputs[0])
    if op.type == "ConcatV2":
        return [index for part in op.inputs[:-1] for index in _split_indices(part)]
    if op.type in _FUNCTION_CALL_OPS and (function := _function_graph(op)):
        split_indices = _split_indices(function.outputs[indices.value_index])
        inlining = _Inlining(function, op)
        if len(split_indices) > 1 and all(map(inlining.is_possible, split_indices)):
            return [index for part in split_indices for index in _split_indices(inlining.copy(part))]
    return [indices]


class _Inlining:
    """Copy of tensors from a function's graph to the graph that calls the function."""

    def __init__(self, function: Any, call: tf.Operation) -> None:
        self.graph = call.graph
        self.copies: dict[int, tf.Tensor] = dict(zip(map(id, function.inputs), call.inputs, strict=True))

    def is_possible(self, tensor: tf.Tensor) -> bool:
        """Return whether a tensor can be copied, that is, whether it depends only on the function's arguments."""
        if id(tensor) in self.copies:
            return True
        op = tensor.op
        return not (op.op_def.is_stateful or op.control_inputs) and all(map(self.is_possible, op.inputs))

    def copy(self, tensor: tf.Tensor) -> tf.Tensor:
        """Return a copy of a tensor in the calling graph."""
        if id(tensor) not in self.copies:
            op, inputs = tensor.op, [self.copy(input_tensor) for input_tensor in tensor.op.inputs]
            attributes = {name: value for name, value in op.node_def.attr.items() if not name.startswith("_")}
            copy = self.graph.create_op(op.type, inputs, [out.dtype for out in op.outputs], attrs=attributes)
            self.copies |= {id(original): copied for original, copied in zip(op.outputs, copy.outputs, strict=True)}
        return self.copies[id(tensor)]


def _is_lookup_once_per_batch(indices: tf.Tensor) -> bool:
    small_shape, large_shape = (_ShapeProbe(batch).shape(indices) for batch in _PROBE_BATCH_SIZES)
    if small_shape is None or not small_shape.is_fully_defined() or small_shape != large_shape:
        return False
    # A graph for a fixed batch size may contain the number of indices as a constant.
    index_tensor = indices.op.inputs[0] if indices.op.type == "Reshape" else indices
    if (
        not index_tensor.shape.rank
        or index_tensor.shape.rank == 1
        or index_tensor.shape[0] not in _batch_sizes(indices.graph)
    ):
        return True
    return _has_different_rows(index_tensor)


def _has_different_rows(indices: tf.Tensor) -> bool:
    """Return whether indices are a constant whose rows differ, such as a table of relative positions."""
    rows = _ShapeProbe(_PROBE_BATCH_SIZES[0]).value(indices)
    return rows is not None and bool((rows != rows[:1]).any())


def _batch_sizes(graph: tf.Graph) -> set[int]:
    """Return the batch sizes in the static shapes of a graph's arguments."""
    captured_ids = {id(inner) for _, inner in getattr(graph, "captures", ())}
    sizes = {_first_axis(t) for t in getattr(graph, "inputs", ()) if id(t) not in captured_ids}
    return {size for size in sizes if size is not None and size > 1}


def _first_axis(tensor: tf.Tensor) -> int | None:
    return tensor.shape[0] if tensor.shape.rank else None


class _ShapeProbe:
    """Inference of the shapes of a graph's tensors for a given number of samples."""

    def __init__(self, batch: int, scratch: tf.Graph | None = None) -> None:
        import tensorflow as tf

        self.batch, self.scratch = batch, scratch or tf.Graph()
        self.copies: dict[int, tf.Tensor] = {}
        self.calls: dict[int, tuple[_ShapeProbe, list[tf.Tensor]]] = {}

    def shape(self, tensor: tf.Tensor) -> tf.TensorShape | None:
        """Return a tensor's shape, or None if TensorFlow cannot infer it."""
        pending_tensors = [tensor]
        with self.scratch.as_default():
            while pending_tensors:
                if id(pending_tensors[-1]) in self.copies:
                    pending_tensors.pop()
                    continue
                missing_inputs = (
                    []
                    if (leaf := self._replace_leaf(pending_tensors[-1])) is not None
                    else self._missing_inputs(pending_tensors[-1])
                )
                if leaf is not None:
                    self.copies[id(pending_tensors[-1])] = leaf
                elif missing_inputs:
                    pending_tensors += missing_inputs
                else:
                    try:
                        self._copy(pending_tensors[-1])
                    except (ValueError, TypeError):
                        return None
        return self.copies[id(tensor)].shape

    def value(self, tensor: tf.Tensor) -> Array | None:
        """Return a tensor's value, or None if it is not constant."""
        import tensorflow as tf

        if self.shape(tensor) is None:
            return None
        with tf.compat.v1.Session(graph=self.scratch) as session:
            try:
                return session.run(self.copies[id(tensor)])  # type: ignore[no-any-return]  # tensorflow is untyped
            except tf.errors.InvalidArgumentError:  # the tensor depends on a placeholder, so it has no value
                return None

    def _missing_inputs(self, tensor: tf.Tensor) -> list[tf.Tensor]:
        outer_tensor = _find_captured_tensor(tensor)
        if outer_tensor is None:
            missing_inputs = _arguments(tensor).values() if tensor.op.type in _FUNCTION_CALL_OPS else tensor.op.inputs
            return [tensor_of_op for tensor_of_op in missing_inputs if id(tensor_of_op) not in self.copies]
        if id(outer_tensor) in self.copies:
            self.copies[id(tensor)] = self.copies[id(outer_tensor)]
            return []
        return [outer_tensor]

    def _copy(self, tensor: tf.Tensor) -> None:
        op = tensor.op
        if id(tensor) in self.copies:
            return  # the tensor was copied from an outer graph
        if op.type in _FUNCTION_CALL_OPS:
            self._copy_result(tensor)
            return
        inputs = [self.copies[id(tensor_of_op)] for tensor_of_op in op.inputs]
        attributes = {name: value for name, value in op.node_def.attr.items() if not name.startswith("_")}
        copy = self.scratch.create_op(op.type, inputs, [out.dtype for out in op.outputs], attrs=attributes)
        self.copies |= {id(original): copied for original, copied in zip(op.outputs, copy.outputs, strict=True)}

    def _copy_result(self, tensor: tf.Tensor) -> None:
        """Copy the result of a call of a `tf.function`, by copying the function's graph with the call's arguments."""
        op = tensor.op
        if id(op) not in self.calls:
            self.calls[id(op)] = _ShapeProbe(self.batch, self.scratch), _function_graph(op).outputs
        inner, results = self.calls[id(op)]
        inner.copies |= {name: self.copies[id(argument)] for name, argument in _arguments(tensor).items()}
        result = results[tensor.value_index]
        if inner.shape(result) is None:  # the function's graph has a fixed number of samples
            raise ValueError(f"{op.name}: TensorFlow cannot infer the shape of this function's result")
        self.copies[id(tensor)] = inner.copies[id(result)]

    def _replace_leaf(self, tensor: tf.Tensor) -> tf.Tensor | None:
        """Return a constant or placeholder for a tensor without inputs; None for other tensors."""
        import tensorflow as tf

        if not tf.is_symbolic_tensor(tensor):  # the tensor is a constant
            if tensor.dtype in {tf.resource, tf.variant} or tensor.shape.num_elements() > _MAX_CONSTANT_VALUES:
                return self._placeholder(tensor, tensor.shape)
            return tf.constant(tensor.numpy())
        op, shape = tensor.op, tensor.shape
        if op.type in {"Placeholder", "IteratorGetNext"}:
            if _find_captured_tensor(tensor) is not None:
                return None
            if shape.rank:
                shape = [self.batch, *(_PROBE_LENGTH if length is None else length for length in shape[1:])]
            return self._placeholder(tensor, shape)
        kinds = {tensor_of_op.dtype for tensor_of_op in (*op.inputs, *op.outputs)}
        is_opaque = kinds & {tf.resource, tf.variant} or any(
            value.HasField("func") for value in op.node_def.attr.values()
        )
        if is_opaque and not _function_graph(op):
            return self._placeholder(tensor, shape)
        return None

    @staticmethod
    def _placeholder(tensor: tf.Tensor, shape: object) -> tf.Tensor:
        import tensorflow as tf

        return tf.compat.v1.placeholder(tensor.dtype, shape)


def _find_captured_tensor(tensor: tf.Tensor) -> tf.Tensor | None:
    """Return the tensor of the outer graph that a function's placeholder captures; None without such a tensor."""
    import tensorflow as tf

    if tf.is_symbolic_tensor(tensor) and tensor.op.type == "Placeholder":
        return next((outer for outer, inner in getattr(tensor.graph, "captures", ()) if inner is tensor), None)
    return None


def _arguments(result: tf.Tensor) -> dict[int, tf.Tensor]:
    """Return the arguments on which one result of a function call depends, by id of the function's input tensor."""
    graph = _function_graph(result.op)
    arguments_by_input = dict(zip(map(id, graph.inputs), result.op.inputs, strict=True))
    pending, visited_ids = [graph.outputs[result.value_index]], set[int]()
    while pending:
        tensor = pending.pop()
        if id(tensor) not in visited_ids:
            visited_ids.add(id(tensor))
            pending += tensor.op.inputs
    return {name: tensor for name, tensor in arguments_by_input.items() if name in visited_ids}


def _function_graph(call: tf.Operation) -> Any:
    """Return the graph of the `tf.function` that an op calls; None if the op calls no known function."""
    if call.type not in _FUNCTION_CALL_OPS:
        return None
    graph, name = call.graph, call.get_attr("f").name
    while graph is not None:
        function = getattr(graph, "_get_function", lambda _: None)(name)  # TensorFlow has no public one
        if function is not None:
            return getattr(function, "graph", None)
        graph = getattr(graph, "outer_graph", None)
    return None
