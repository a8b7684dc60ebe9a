"""A decoder-only transformer that predicts the next byte of a text: data-parallel, in pipeline stages, or both.

The blocks are those of GPT-2, the recipe is that of Brown et al., "Language Models are Few-Shot Learners"
(arXiv:2005.14165, appendix B): AdamW with a warm-up and a cosine decay to a tenth of the peak learning rate, a weight
decay of 0.1, and gradients clipped to a global norm of 1. Bytes are the vocabulary, so no tokenizer is needed.
"""

from __future__ import annotations

import math
import sys
from functools import partial

import hpcrun.train

args = hpcrun.train.options(__file__)
hpcrun.train.init()  # starts MPI, and TensorFlow on this rank's cores and GPU, before the import of Keras

import keras  # noqa: E402
import networks  # noqa: E402  (in this folder)
import numpy as np  # noqa: E402
import texts  # noqa: E402  (in this folder)

keras.utils.set_random_seed(args.seed)
if args.precision != "float32":
    keras.mixed_precision.set_global_policy(args.precision)

# Text: sequences of bytes, with the byte that follows; the last tenth is for validation.
text = texts.read_text(args.text)  # (n,)
train, held_out = texts.split_sequences(text, args.context)  # (m, 129) each

# Model: the logits of the next byte at each position, (batch, 128, 256); a rank has the weights of its stage only.
size = networks.choose_size(args.size, depth=args.depth, width=args.width, heads=args.heads)
with hpcrun.train.lazy_weights():
    network = networks.build(size, args.context, dropout=args.dropout)
pipeline = {"stages": args.stages, "micro_batches": args.micro_batches, "recompute": args.recompute}
if args.plan:
    if hpcrun.train.is_chief():
        replicas = max(1, hpcrun.train.size() // args.stages)
        print(hpcrun.train.plan(network, batch_size=args.batch_size, replicas=replicas, **pipeline))
    sys.exit()
model = hpcrun.train.Model(network, **pipeline)
steps = args.epochs * math.ceil(len(train) / args.batch_size)
warmup_steps = steps // 10 if args.warmup_steps is None else args.warmup_steps
peak = size.learning_rate if args.learning_rate is None else args.learning_rate
learning_rate = keras.optimizers.schedules.CosineDecay(
    peak / (warmup_steps + 1), max(1, steps - warmup_steps), alpha=0.1, warmup_target=peak, warmup_steps=warmup_steps
)
optimizer = keras.optimizers.AdamW(
    learning_rate, weight_decay=args.weight_decay, beta_2=0.95, global_clipnorm=args.clip_norm or None
)
optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
model.compile(
    optimizer=optimizer,
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
    jit_compile=args.xla,
)

# Data: batches, after the model, because the stages of a replica get the same samples.
make_batches = partial(hpcrun.train.dataset, batch_size=args.batch_size, seed=args.seed)


def split_targets(sequences: object) -> tuple[object, object]:
    """Convert sequences, (b, 129), to inputs and targets, (b, 128) each."""
    tokens = keras.ops.cast(sequences, "int32")
    return tokens[:, :-1], tokens[:, 1:]


training, validation = (
    hpcrun.train.map_batches(batches, split_targets)
    for batches in (make_batches(train, shuffle=True), make_batches(held_out))
)

callbacks = hpcrun.train.run_callbacks(texts.BYTE_NAMES, log_every=args.log_every, monitor="val_loss")
history = model.fit(training, epochs=args.epochs, validation_data=validation, callbacks=callbacks).history

# Sample: the model continues the first byte of the validation text, with a temperature of 0.8.
written = [int(held_out[0, 0])]
generator = np.random.default_rng(args.seed)
while len(written) <= args.sample:
    window = written[-args.context :]
    tokens = np.pad(window, (0, args.context - len(window)))[np.newaxis]  # (1, 128)
    logits = model.predict(tokens)[0, len(window) - 1]  # (256,): bytes after the window do not change them
    probabilities = np.exp((logits.astype("float64") - logits.max()) / 0.8)  # (256,)
    written.append(int(generator.choice(networks.BYTES, p=probabilities / probabilities.sum())))
if args.sample and hpcrun.train.is_chief():
    print(f"a text of the model:\n{bytes(written[1:]).decode(errors='replace')}")

hpcrun.train.write_result(
    bits_per_byte=history["val_loss"][-1] / math.log(2),
    perplexity=math.exp(history["val_loss"][-1]),
    val_loss=history["val_loss"][-1],
    final_loss=history["loss"][-1],
    tokens_per_second=args.context * hpcrun.train.samples_per_second(),
    parameters=network.count_params(),
    size=args.size,
)
