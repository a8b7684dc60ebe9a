"""ResNet-50 and other networks on ImageNet or one's own images with Keras on JAX, by keras.distribution.DataParallel.

Each process of jax.distributed brings its devices. The training step is compiled for all of them as one program, which
computes what one device would: also batch normalization uses the statistics of the whole batch.

The defaults are the recipe of Goyal et al., "Accurate, Large Minibatch SGD" (arXiv:1706.02677, sections 2 and 5.1), as
for the workload resnet50: a rate of 0.1 for each 256 images of the batch, reached over 5 of 90 epochs, a tenth of it
after 30, 60 and 80 of them, and a weight decay of 0.0001.
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

os.environ["KERAS_BACKEND"] = "jax"

import jax
import numpy as np

import hpcrun.run
from hpcrun import paths
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Iterator

args = hpcrun.run.options(__file__)
data_dir = args.data_dir or os.environ.get("HPCRUN_DATA_IMAGENET")
if not (args.synthetic_data or data_dir):
    sys.exit(
        "ERROR: resnet50-jax has no images: give --data-dir (or $HPCRUN_DATA_IMAGENET) or --synthetic-data\n"
        "HINT: --data-dir FOLDER trains on its images, --synthetic-data on random ones, to measure speed only"
    )

# Processes: hpcrun has set these variables in a job of several ranks. JAX must connect before it has any device.
if int(os.environ.get("JAX_NUM_PROCESSES", "1")) > 1:
    names = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
    address, count, number = (os.environ[name] for name in names)
    jax.distributed.initialize(address, int(count), int(number))
process, devices = jax.process_index(), jax.device_count()
# From here on, a stop signal does not end this process; JAX has replaced earlier handlers of SIGTERM by its own.
hpcrun.run.checkpoint_requested()

import images  # noqa: E402  (beside this file)
import keras  # noqa: E402
from jax.experimental import multihost_utils  # noqa: E402

sys.path.append(str(paths.shipped_folder("workloads") / "resnet50"))
import networks  # noqa: E402  (those of the workload resnet50)

keras.utils.set_random_seed(args.seed)
if args.precision != "float32":
    keras.mixed_precision.set_global_policy(args.precision)
# Before the first variable: from here on, each one has a copy on every device. Our batches are divided already.
distribution = keras.distribution.DataParallel(auto_shard_dataset=False)
keras.distribution.set_distribution(distribution)

# Data: a process reads and decodes only its own part of each batch.
size = args.image_size
if args.synthetic_data:
    training = images.RandomImages(args.train_num_samples or 2560, size, args.num_classes, args.seed)
    validation = images.RandomImages(args.val_num_samples or 256, size, args.num_classes, args.seed + 1)
else:
    try:
        training = images.read_split(data_dir, "train", size, args.augment, args.train_num_samples)
        validation = images.read_split(data_dir, "validation", size, "none", args.val_num_samples)
    except HpcrunError as error:
        sys.exit(f"ERROR: {error}")
epochs, steps, classes = args.train_epochs, len(training) // args.batch_size, len(training.names)
if not steps or args.batch_size % devices:
    sys.exit(
        f"ERROR: --batch-size={args.batch_size} does not fit {len(training)} training images and {devices} devices\n"
        "HINT: it is the number of images of a step over all devices, a multiple of their number; the last, smaller "
        "batch is left out"
    )


class Rate(keras.optimizers.schedules.LearningRateSchedule):
    """The learning rate of a step: it grows with the batch, after a warm-up, and decays by epoch."""

    def __init__(self) -> None:
        base = networks.ARCHITECTURES[args.arch].learning_rate if args.learning_rate is None else args.learning_rate
        self.scale = args.batch_size / 256  # k of the paper
        warmup = min(5, epochs * 5 / 90) if args.warmup_epochs is None else args.warmup_epochs
        self.warmup = warmup if self.scale > 1 else 0
        decay = hpcrun.run.decay(args.schedule, epochs)
        self.rates = np.array([base * self.scale * decay(epoch) for epoch in range(epochs + 1)], "float32")  # (epochs,)
        self.base = base

    def __call__(self, step: object) -> object:
        """Return the rate of a step, from 0."""
        done = keras.ops.cast(step, "float32") / steps  # epochs, such as 1.5
        rate = keras.ops.take(self.rates, keras.ops.cast(keras.ops.floor(done), "int32"))
        if not self.warmup:
            return rate
        warm = self.base * (1 + (self.scale - 1) * done / self.warmup)
        return keras.ops.where(done < self.warmup, warm, rate)


# Model and optimizer; weight decay is part of the loss, as in the workload resnet50.
network = networks.build(args.arch, size, classes, weight_decay=args.weight_decay)
optimizer = keras.optimizers.SGD(Rate(), momentum=args.momentum)
optimizer.build(network.trainable_variables)
mesh = distribution.device_mesh.backend_mesh
replicated = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
divided = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(distribution.batch_dim_name))


def share(values: np.ndarray, sharding: jax.sharding.Sharding) -> jax.Array:
    """Return an array over all devices: this process has the values of its own."""
    return jax.make_array_from_process_local_data(sharding, values)


def forward(trainable: list, others: list, batch: tuple, *, training: bool) -> tuple:
    """Return the loss, the other variables and the sums of losses, right answers, those in the first 5, and images."""
    x, labels, weights = batch  # (b, 224, 224, 3), (b,), (b,)
    y = keras.ops.one_hot(labels, classes)  # (b, classes)
    found, others, penalties = network.stateless_call(trainable, others, x, training=training, return_losses=True)
    losses = keras.losses.categorical_crossentropy(y, found, label_smoothing=args.label_smoothing) + sum(penalties)
    right = (keras.ops.cast(keras.ops.in_top_k(labels, found, k), "float32") for k in (1, min(5, classes)))
    sums = keras.ops.stack([keras.ops.sum(each * weights) for each in (losses, *right, keras.ops.ones_like(weights))])
    return sums[0] / sums[3], (others, sums)


@partial(jax.jit, donate_argnums=0, out_shardings=replicated)
def train_step(state: tuple, batch: tuple) -> tuple:
    """Return the loss of a batch, and the state after its step."""
    trainable, others, optimizer_state, totals = state
    compute = jax.value_and_grad(partial(forward, training=True), has_aux=True)
    (loss, (others, sums)), gradients = compute(trainable, others, batch)
    trainable, optimizer_state = optimizer.stateless_apply(optimizer_state, gradients, trainable)
    return loss, (trainable, others, optimizer_state, totals + sums)


@partial(jax.jit, out_shardings=replicated)
def validation_step(state: tuple, batch: tuple) -> jax.Array:
    """Evaluate a batch: return the sums of its losses, right answers, those in the first 5, and images."""
    return forward(state[0], state[1], batch, training=False)[1][1]


def summarize(totals: jax.Array, prefix: str = "") -> dict[str, float]:
    """Return the metrics of the sums of an epoch."""
    loss, accuracy, top_5, count = np.asarray(totals, "float64").tolist()
    means = {"loss": loss / count, "accuracy": accuracy / count, "top_5_accuracy": top_5 / count}
    return {prefix + name: value for name, value in means.items()}


# Checkpoint: process 0 writes it, all processes read it when the job starts again.
file = (run_dir := hpcrun.run.run_dir()) and run_dir / "checkpoints" / "training.npz"
epoch, step, last = 0, 0, {}  # completed epochs, completed steps of the next one, metrics of the last one
variables = (network.trainable_variables, network.non_trainable_variables, optimizer.variables)
none_yet = np.zeros(4, "float32")  # the sums of an epoch
state = (*([variable.value for variable in each] for each in variables), share(none_yet, replicated))
if file and file.exists():
    with np.load(file) as saved:
        leaves, structure = jax.tree.flatten(state)
        values = [share(saved[f"value{number}"], replicated) for number in range(len(leaves))]
        state, (epoch, step, last) = jax.tree.unflatten(structure, values), json.loads(str(saved["position"]))
    if process == 0:
        print(f"from {file}: {epoch} epochs and {step} batches of the next are done", flush=True)


def save(epoch: int, step: int) -> None:
    """Replace the checkpoint, on process 0."""
    if file and process == 0:
        file.parent.mkdir(exist_ok=True)
        values = {f"value{number}": np.asarray(leaf) for number, leaf in enumerate(jax.tree.leaves(state))}
        draft = file.with_name(".training.npz")
        np.savez(draft, position=json.dumps([epoch, step, last]), **values)
        draft.replace(file)


def largest(number: float) -> int:
    """Return the largest number of all processes; every process must call this."""
    return int(multihost_utils.process_allgather(np.array(int(number), "int32")).max())


def load(split: images.ImageReader | images.RandomImages, seed: str, **options: object) -> Iterator[tuple]:
    """Yield the batches of a split, divided among the devices."""
    for batch in images.batches(split, args.batch_size, args.workers, seed, **options):
        yield tuple(share(values, divided) for values in batch)


loss, saved_at = none_yet, time.monotonic()
while epoch < epochs:
    begin, first = time.perf_counter(), step
    for batch in load(training, f"{args.seed} {epoch}", shuffle=True, first=first):
        previous, (loss, state) = loss, train_step(state, batch)
        jax.block_until_ready(previous)  # reads one batch during each step, and no more
        step += 1
        progress = {"epoch": epoch + 1, "epochs": epochs, "step": step, "steps": steps, "batch_size": args.batch_size}
        hpcrun.run.heartbeat(**progress, loss=loss)
        if args.log_every and step % args.log_every == 0 and process == 0:
            rate = (step - first) * args.batch_size / (time.perf_counter() - begin)
            print(f"step {epoch * steps + step}, loss = {loss:.2f} ({rate:.1f} images/s)", flush=True)
        if step % 10 == 0 and step < steps and (number := largest(hpcrun.run.checkpoint_requested())):
            save(epoch, step)
            if process == 0:
                print(f"stopped in epoch {epoch + 1}, after {step} batches; to go on, start it again", flush=True)
            sys.exit(128 + number)

    last = summarize(state[3])  # waits for the last step
    rate = (step - first) * args.batch_size / (time.perf_counter() - begin)
    if (epoch + 1) % args.val_freq == 0:
        hpcrun.run.heartbeat(phase="validation")
        last |= summarize(sum(validation_step(state, batch) for batch in load(validation, "", shuffle=False)), "val_")
    state = (*state[:3], share(none_yet, replicated))
    epoch, step = epoch + 1, 0
    seconds = time.perf_counter() - begin
    hpcrun.run.log_metrics(epoch, epochs, **last, images_per_second=rate, seconds=round(seconds, 3))
    number = largest(hpcrun.run.checkpoint_requested())
    if largest(process == 0 and time.monotonic() - saved_at > 600) or number or epoch == epochs:
        save(epoch, 0)
        saved_at = time.monotonic()
    if number and epoch < epochs:
        sys.exit(128 + number)

hpcrun.run.heartbeat(phase="trained")
for variable, value in zip(variables[0] + variables[1], state[0] + state[1], strict=True):
    variable.assign(value)  # on all processes: it is an array over all devices
if run_dir and process == 0:
    network.save(run_dir / "model.keras")
    (run_dir / "labels.txt").write_text("".join(f"{name}\n" for name in training.names))
hpcrun.run.write_result(**{f"final_{name}": value for name, value in last.items()}, arch=args.arch)
