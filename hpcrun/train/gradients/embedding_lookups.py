"""What one process would have of the rows of an embedding's gradient: each sample's own, or each once for all samples.

A token's row is looked up by a sample: one process has the rows of all samples, and ranks have those of their own. A
position's row, looked up as ``embedding(arange(length))``, is there once for all samples: one process has the sum of
what they say, and every rank has a summand of it. Keras's optimizers square and clip rows one by one, so that a sum
and its summands are not the same to them. Which of the two a row is, the graph of the training step tells: whether
the number of rows grows with the number of samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf

_PROBE_BATCH_SIZES = (5, 7)  # two numbers of samples, to see what grows
_PROBE_LENGTH = 11  # any other axis whose length the graph leaves open
_MAX_CONSTANT_VALUES = 1000  # constants whose values may be lengths


@dataclass
class EmbeddingLookups:
    """A sparse gradient, in one piece for each time that the table was used.

    Attributes:
        slices: The pieces, in order.
        once_per_batch: Of each, whether a batch has its rows once, and not for each sample.
    """

    slices: list[tf.IndexedSlices]
    once_per_batch: list[bool]


def split_lookups(gradient: tf.IndexedSlices) -> EmbeddingLookups:
    """Take a sparse gradient apart.

    Args:
        gradient: As a tape gives it; in a graph. Of one that was computed eagerly nobody knows where it comes from: it
            is one piece, of rows of samples.
    """
    import tensorflow as tf

    if tf.is_symbolic_tensor(gradient.indices):
        indices = _split_indices(gradient.indices)
        once_per_batch = [_is_once_per_batch(each) for each in indices]
        if any(once_per_batch):
            if len(indices) == 1:
                return EmbeddingLookups([gradient], once_per_batch)
            values = tf.split(gradient.values, [tf.size(each) for each in indices], num=len(indices))
            shape = gradient.dense_shape
            pairs = zip(values, indices, strict=True)
            return EmbeddingLookups([tf.IndexedSlices(rows, each, shape) for rows, each in pairs], once_per_batch)
    return EmbeddingLookups([gradient], [False])


def probe_lengths(tensor: tf.Tensor) -> tuple[int | None, int | None]:
    """Return how many values a tensor of a graph would have for two numbers of samples; None where nobody knows."""
    few, many = (_ShapeProbe(batch).shape(tensor) for batch in _PROBE_BATCH_SIZES)
    return None if few is None else few.num_elements(), None if many is None else many.num_elements()


def _split_indices(indices: tf.Tensor) -> list[tf.Tensor]:
    """Return what the tape has concatenated; what the user has, it flattens first."""
    op = indices.op
    if op.type == "Identity":
        return _split_indices(op.inputs[0])
    if op.type == "ConcatV2":
        return [piece for each in op.inputs[:-1] for piece in _split_indices(each)]
    return [indices]


def _is_once_per_batch(indices: tf.Tensor) -> bool:
    few, many = (_ShapeProbe(batch).shape(indices) for batch in _PROBE_BATCH_SIZES)
    if few is None or not few.is_fully_defined() or few != many:
        return False
    # A graph for one number of samples alone may have it as a constant, in what is the same for all of them.
    looked_up = indices.op.inputs[0].shape if indices.op.type == "Reshape" else indices.shape
    return not (looked_up.rank and looked_up.rank > 1 and looked_up[0] in _batch_sizes(indices.graph))


def _batch_sizes(graph: tf.Graph) -> set[int]:
    """Return the numbers of samples that a graph was made for, as far as its arguments tell."""
    captured = {id(inner) for _, inner in getattr(graph, "captures", ())}
    found = {_first_axis(t) for t in getattr(graph, "inputs", ()) if id(t) not in captured}
    return {size for size in found if size is not None and size > 1}


def _first_axis(tensor: tf.Tensor) -> int | None:
    return tensor.shape[0] if tensor.shape.rank else None


class _ShapeProbe:
    """The shapes that tensors of a graph would have for another number of samples; TensorFlow infers them."""

    def __init__(self, batch: int) -> None:
        import tensorflow as tf

        self.batch, self.scratch = batch, tf.Graph()
        self.copies: dict[int, tf.Tensor] = {}

    def shape(self, tensor: tf.Tensor) -> tf.TensorShape | None:
        """Return a tensor's shape, or None where what it is computed of does not fit."""
        pending = [tensor]
        with self.scratch.as_default():
            while pending:
                if id(pending[-1]) in self.copies:
                    pending.pop()
                    continue
                needed = [] if (found := self._leaf(pending[-1])) is not None else self._missing(pending[-1])
                if found is not None:
                    self.copies[id(pending[-1])] = found
                elif needed:
                    pending += needed
                else:
                    try:
                        self._copy(pending[-1].op)
                    except (ValueError, TypeError):
                        return None
        return self.copies[id(tensor)].shape

    def _missing(self, tensor: tf.Tensor) -> list[tf.Tensor]:
        outer = _captured(tensor)
        if outer is None:
            return [each for each in tensor.op.inputs if id(each) not in self.copies]
        if id(outer) in self.copies:
            self.copies[id(tensor)] = self.copies[id(outer)]
            return []
        return [outer]

    def _copy(self, op: tf.Operation) -> None:
        if id(op.outputs[0]) in self.copies:
            return  # of an outer graph
        inputs = [self.copies[id(each)] for each in op.inputs]
        attributes = {name: value for name, value in op.node_def.attr.items() if not name.startswith("_")}
        copy = self.scratch.create_op(op.type, inputs, [out.dtype for out in op.outputs], attrs=attributes)
        self.copies |= {id(one): other for one, other in zip(op.outputs, copy.outputs, strict=True)}

    def _leaf(self, tensor: tf.Tensor) -> tf.Tensor | None:
        """Return what stands for a tensor that is not computed, or not of what can be followed; else None."""
        import tensorflow as tf

        if not tf.is_symbolic_tensor(tensor):  # a constant
            if tensor.dtype in {tf.resource, tf.variant} or tensor.shape.num_elements() > _MAX_CONSTANT_VALUES:
                return self._placeholder(tensor, tensor.shape)
            return tf.constant(tensor.numpy())
        op, shape = tensor.op, tensor.shape
        if op.type in {"Placeholder", "IteratorGetNext"}:
            if _captured(tensor) is not None:
                return None
            if shape.rank:
                shape = [self.batch, *(_PROBE_LENGTH if length is None else length for length in shape[1:])]
            return self._placeholder(tensor, shape)
        kinds = {each.dtype for each in (*op.inputs, *op.outputs)}
        if kinds & {tf.resource, tf.variant} or any(value.HasField("func") for value in op.node_def.attr.values()):
            return self._placeholder(tensor, shape)
        return None

    @staticmethod
    def _placeholder(tensor: tf.Tensor, shape: object) -> tf.Tensor:
        import tensorflow as tf

        return tf.compat.v1.placeholder(tensor.dtype, shape)


def _captured(tensor: tf.Tensor) -> tf.Tensor | None:
    """Return the tensor of an outer graph that stands behind a function's placeholder, if one does."""
    import tensorflow as tf

    if tf.is_symbolic_tensor(tensor) and tensor.op.type == "Placeholder":
        return next((outer for outer, inner in getattr(tensor.graph, "captures", ()) if inner is tensor), None)
    return None
