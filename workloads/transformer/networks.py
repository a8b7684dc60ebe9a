"""Decoder-only transformers of bytes, from layers of Keras only, so that any program with Keras can load them."""

from __future__ import annotations

import math
from typing import NamedTuple

import keras
from keras import layers, ops

from hpcrun.train import HpcrunError

BYTES = 256  # the vocabulary


class Size(NamedTuple):
    """A size of the network.

    Attributes:
        depth: Number of blocks.
        width: Units of each block.
        heads: Attention heads of each block.
        learning_rate: Peak learning rate of AdamW; larger networks need smaller ones (Brown et al., arXiv:2005.14165).
    """

    depth: int
    width: int
    heads: int
    learning_rate: float


SIZES = {
    "1m": Size(4, 136, 4, 0.003),  # 0.98 M parameters with a context of 128 bytes
    "10m": Size(8, 320, 5, 0.001),  # 10.1 M
    "100m": Size(12, 832, 13, 0.0006),  # 100.3 M
    "350m": Size(28, 1024, 16, 0.0003),  # 353.4 M
    "1b": Size(20, 2048, 16, 0.0002),  # 1,008.5 M
}


def choose_size(name: str, *, depth: int | None = None, width: int | None = None, heads: int | None = None) -> Size:
    """Return a size with other values of its attributes, unless they are None.

    A width alone gets the most heads, up to those of the size, among which it divides; heads alone get the next width.

    Args:
        name: A key of `SIZES`.
        depth: Number of blocks.
        width: Units of each block.
        heads: Attention heads of each block.

    Raises:
        HpcrunError: The width is not a multiple of the heads.
    """
    size = SIZES[name]
    if heads is None:
        heads = size.heads if width is None else max(h for h in range(1, size.heads + 1) if width % h == 0)
    next_width = heads * math.ceil((width or size.width) / heads)
    if width not in {None, next_width}:
        raise HpcrunError(
            f"--width={width} is not a multiple of --heads={heads}", hint=f"--width {next_width}, or other --heads"
        )
    return Size(depth or size.depth, next_width, heads, size.learning_rate)


def build(size: Size, context: int, *, dropout: float = 0.0) -> keras.Model:
    """Return a network from bytes to the logits of the byte that follows each of them.

    The blocks normalize their input, as those of GPT-2; the weights of the first and the last layer are not shared.

    Args:
        size: Depth, width and heads.
        context: Number of bytes of a sequence.
        dropout: Probability of dropout.
    """
    tokens = keras.Input((context,), dtype="int32", name="tokens")  # (batch, context)
    # Matrix products of one-hot vectors have small, dense gradients; those of keras.layers.Embedding have a row for
    # each byte of the batch. The bias of each position is its embedding.
    embedding = layers.EinsumDense(
        "btv,vw->btw",
        output_shape=(context, size.width),
        bias_axes="tw",
        kernel_initializer=initial_weights(size),
        bias_initializer=initial_weights(size),
        name="embedding",
    )
    x = layers.Dropout(dropout)(embedding(ops.one_hot(tokens, BYTES)))  # (batch, context, width)
    for number in range(1, size.depth + 1):
        x = add_block(x, size, dropout, f"block_{number}")  # (batch, context, width)
    x = layers.LayerNormalization(epsilon=1e-5, name="normalization")(x)
    output = layers.Dense(BYTES, kernel_initializer=initial_weights(size), dtype="float32", name="logits")
    return keras.Model(tokens, output(x), name="transformer")  # (batch, context, 256)


def add_block(x: keras.KerasTensor, size: Size, dropout: float, name: str) -> keras.KerasTensor:
    """Return the output of a block: causal self-attention and two dense layers, each added to its input."""
    attention = layers.MultiHeadAttention(
        size.heads,
        size.width // size.heads,
        dropout=dropout,
        kernel_initializer=initial_weights(size),
        name=f"{name}_attention",
    )
    y = layers.LayerNormalization(epsilon=1e-5, name=f"{name}_attention_normalization")(x)  # (batch, context, width)
    x = layers.Add()([x, layers.Dropout(dropout)(attention(y, y, use_causal_mask=True))])  # (batch, context, width)
    dense = {"kernel_initializer": initial_weights(size)}
    y = layers.LayerNormalization(epsilon=1e-5, name=f"{name}_dense_normalization")(x)  # (batch, context, width)
    y = layers.Dense(4 * size.width, activation="gelu", name=f"{name}_expand", **dense)(y)  # (batch, context, 4 width)
    y = layers.Dense(size.width, name=f"{name}_reduce", **dense)(y)  # (batch, context, width)
    return layers.Add()([x, layers.Dropout(dropout)(y)])


def initial_weights(size: Size) -> keras.initializers.Initializer:
    """Return an initializer with a seed of its own: a normal distribution, whose deviation is 0.02 for 2,500 units."""
    return keras.initializers.RandomNormal(stddev=size.width**-0.5)
