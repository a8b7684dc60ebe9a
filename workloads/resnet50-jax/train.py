"""ResNet-50 and other networks on ImageNet or the user's images with Keras on JAX and keras.distribution.DataParallel.

The training step is compiled as one program for the devices of all processes. The results are those of one device;
batch normalization also uses the statistics of the whole batch.

The defaults are the recipe of Goyal et al., "Accurate, Large Minibatch SGD" (arXiv:1706.02677, sections 2 and 5.1), as
for the workload resnet50: a learning rate of 0.1 per 256 images of the batch with a warm-up of 5 epochs, a tenth of the
rate after 30, 60 and 80 of 90 epochs, and a weight decay of 0.0001.
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

os.environ["KERAS_BACKEND"] = "jax"

import hpcrun.run
from hpcrun import paths
from hpcrun.data import decoders
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

pool = decoders.start(0 if args.synthetic_data else args.workers)  # fork before the import of JAX

import jax  # noqa: E402
import numpy as np  # noqa: E402

# Processes: hpcrun sets these variables in a job of several ranks. JAX must connect before it initializes its devices.
if int(os.environ.get("JAX_NUM_PROCESSES", "1")) > 1:
    names = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
    address, process_count, process_id = (os.environ[name] for name in names)
    jax.distributed.initialize(address, int(process_count), int(process_id))
process, devices = jax.process_index(), jax.device_count()
# From here on, stop signals are recorded and do not end this process. JAX has replaced earlier handlers of SIGTERM.
hpcrun.run.checkpoint_requested()

import images  # noqa: E402  (beside this file)
import keras  # noqa: E402
from jax.experimental import multihost_utils  # noqa: E402

sys.path.append(str(paths.shipped_folder("workloads") / "resnet50"))
import networks  # noqa: E402  (the networks of the workload resnet50)

keras.utils.set_random_seed(args.seed)
if args.precision != "float32":
    keras.mixed_precision.set_global_policy(args.precision)
# Variables created from here on have a copy on every device. Batches are already sharded.
distribution = keras.distribution.DataParallel(auto_shard_dataset=False)
keras.distribution.set_distribution(distribution)

# Data: a process reads and decodes only its own shard of each batch.
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


class LearningRate(keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate proportional to the batch size, with a warm-up and a decay by epoch."""

    def __init__(self) -> None:
        base = networks.ARCHITECTURES[args.arch].learning_rate if args.learning_rate is None else args.learning_rate
        self.scale = args.batch_size / 256  # k in the paper
        warmup = min(5, epochs * 5 / 90) if args.warmup_epochs is None else args.warmup_epochs
        self.warmup = warmup if self.scale > 1 else 0
        decay = hpcrun.run.decay(args.schedule, epochs)
        self.rates = np.array([base * self.scale * decay(epoch) for epoch in range(epochs + 1)], "float32")  # (epochs,)
        self.base = base

    def __call__(self, step: object) -> object:
        """Return the learning rate of a step, from 0."""
        epochs_done = keras.ops.cast(step, "float32") / steps  # a float, such as 1.5
        rate = keras.ops.take(self.rates, keras.ops.cast(keras.ops.floor(epochs_done), "int32"))
        if not self.warmup:
            return rate
        warmup_rate = self.base * (1 + (self.scale - 1) * epochs_done / self.warmup)
        return keras.ops.where(epochs_done < self.warmup, warmup_rate, rate)


# Model and optimizer; weight decay is part of the loss, as in the workload resnet50.
network = networks.build(args.arch, size, classes, weight_decay=args.weight_decay)
optimizer = keras.optimizers.SGD(LearningRate(), momentum=args.momentum)
optimizer.build(network.trainable_variables)
mesh = distribution.device_mesh.backend_mesh
replicated_sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
batch_sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(distribution.batch_dim_name))


def to_global_array(local_values: np.ndarray, sharding: jax.sharding.Sharding) -> jax.Array:
    """Return an array over all devices, given this process's part of the values."""
    return jax.make_array_from_process_local_data(sharding, local_values)


def forward(trainable: list, non_trainable: list, batch: tuple, *, training: bool) -> tuple:
    """Return the mean loss, the non-trainable variables, and the sums that `totals` contains."""
    x, labels, weights = batch  # (b, 224, 224, 3), (b,), (b,)
    y = keras.ops.one_hot(labels, classes)  # (b, classes)
    y_pred, non_trainable, penalties = network.stateless_call(
        trainable, non_trainable, x, training=training, return_losses=True
    )
    losses = keras.losses.categorical_crossentropy(y, y_pred, label_smoothing=args.label_smoothing) + sum(penalties)
    is_correct = (keras.ops.cast(keras.ops.in_top_k(labels, y_pred, k), "float32") for k in (1, min(5, classes)))
    sums = keras.ops.stack(
        [keras.ops.sum(values * weights) for values in (losses, *is_correct, keras.ops.ones_like(weights))]
    )
    return sums[0] / sums[3], (non_trainable, sums)


@partial(jax.jit, donate_argnums=0, out_shardings=replicated_sharding)
def train_step(state: tuple, batch: tuple, stop_signals: jax.Array) -> tuple:
    """Train on a batch; return its mean loss, the largest stop signal, and the state after the step."""
    trainable, non_trainable, optimizer_state, totals = state
    loss_and_gradients = jax.value_and_grad(partial(forward, training=True), has_aux=True)
    (loss, (non_trainable, sums)), gradients = loss_and_gradients(trainable, non_trainable, batch)
    trainable, optimizer_state = optimizer.stateless_apply(optimizer_state, gradients, trainable)
    return loss, keras.ops.max(stop_signals), (trainable, non_trainable, optimizer_state, totals + sums)


@partial(jax.jit, out_shardings=replicated_sharding)
def validation_step(state: tuple, batch: tuple) -> jax.Array:
    """Evaluate a batch, and return the sums that `totals` contains."""
    return forward(state[0], state[1], batch, training=False)[1][1]


def summarize(totals: jax.Array, prefix: str = "") -> dict[str, float]:
    """Return the metrics of an epoch, given its sums."""
    loss, accuracy, top_5, count = np.asarray(totals, "float64").tolist()
    means = {"loss": loss / count, "accuracy": accuracy / count, "top_5_accuracy": top_5 / count}
    return {prefix + name: value for name, value in means.items()}


# Checkpoint: process 0 writes the file, and all processes read the file when the job restarts.
file = (run_dir := hpcrun.run.run_dir()) and run_dir / "checkpoints" / "training.npz"
epoch, step, epoch_metrics = 0, 0, {}  # completed epochs, completed steps of the next epoch, metrics of the last epoch
variables = (network.trainable_variables, network.non_trainable_variables, optimizer.variables)
zero_totals = np.zeros(4, "float32")  # sums over an epoch: losses, correct predictions, correct in the top 5, images
state = (
    *([variable.value for variable in group] for group in variables),
    to_global_array(zero_totals, replicated_sharding),
)
if file and file.exists():
    with np.load(file) as saved:
        leaves, structure = jax.tree.flatten(state)
        values = [to_global_array(saved[f"value{index}"], replicated_sharding) for index in range(len(leaves))]
        state, (epoch, step, epoch_metrics) = jax.tree.unflatten(structure, values), json.loads(str(saved["position"]))
    if process == 0:
        print(f"from {file}: {epoch} epochs and {step} batches of the next epoch are done", flush=True)


def save(epoch: int, step: int) -> None:
    """Replace the checkpoint, on process 0."""
    if file and process == 0:
        file.parent.mkdir(exist_ok=True)
        values = {f"value{index}": np.asarray(leaf) for index, leaf in enumerate(jax.tree.leaves(state))}
        temporary_file = file.with_name(".training.npz")
        np.savez(temporary_file, position=json.dumps([epoch, step, epoch_metrics]), **values)
        temporary_file.replace(file)


def max_over_processes(value: float) -> int:
    """Return the maximum of a number over all processes; every process must call this."""
    return int(multihost_utils.process_allgather(np.array(int(value), "int32")).max())


def load(split: images.ImageReader | images.RandomImages, seed: str, **options: object) -> Iterator[tuple]:
    """Yield the batches of a split, sharded over the devices."""
    for batch in images.batches(split, args.batch_size, pool, seed, **options):
        yield tuple(to_global_array(values, batch_sharding) for values in batch)


def share_stop_signal() -> jax.Array:
    """Return the stop signal that this process has received, or 0, for each device of all processes."""
    return to_global_array(
        np.full(jax.local_device_count(), hpcrun.run.checkpoint_requested(), "int32"), batch_sharding
    )


signal_number, saved_at = 0, time.monotonic()
while epoch < epochs:
    start_time, first_step = time.perf_counter(), step
    for batch in load(training, f"{args.seed} {epoch}", shuffle=True, first_batch=first_step):
        previous, (loss, signal_number, state) = signal_number, train_step(state, batch, share_stop_signal())
        stop_signal = int(previous)  # wait for the previous step, so that at most one batch is prefetched
        step += 1
        progress = {"epoch": epoch + 1, "epochs": epochs, "step": step, "steps": steps, "batch_size": args.batch_size}
        hpcrun.run.heartbeat(**progress, loss=loss)
        if args.log_every and step % args.log_every == 0 and process == 0:
            rate = (step - first_step) * args.batch_size / (time.perf_counter() - start_time)
            print(f"step {epoch * steps + step}, loss = {loss:.2f} ({rate:.1f} images/s)", flush=True)
        if stop_signal and step < steps:
            save(epoch, step)
            if process == 0:
                print(f"stopped in epoch {epoch + 1}, after {step} batches; start it again to continue", flush=True)
            sys.exit(128 + stop_signal)

    epoch_metrics = summarize(state[3])  # this call waits for the last step
    rate = (step - first_step) * args.batch_size / (time.perf_counter() - start_time)
    if (epoch + 1) % args.val_freq == 0:
        hpcrun.run.heartbeat(phase="validation")
        epoch_metrics |= summarize(
            sum(validation_step(state, batch) for batch in load(validation, "", shuffle=False)), "val_"
        )
    state = (*state[:3], to_global_array(zero_totals, replicated_sharding))
    epoch, step = epoch + 1, 0
    seconds = time.perf_counter() - start_time
    hpcrun.run.log_metrics(epoch, epochs, **epoch_metrics, images_per_second=rate, seconds=round(seconds, 3))
    signal_number = max_over_processes(hpcrun.run.checkpoint_requested())
    if max_over_processes(process == 0 and time.monotonic() - saved_at > 600) or signal_number or epoch == epochs:
        save(epoch, 0)
        saved_at = time.monotonic()
    if signal_number and epoch < epochs:
        sys.exit(128 + signal_number)

hpcrun.run.heartbeat(phase="trained")
for variable, value in zip(variables[0] + variables[1], state[0] + state[1], strict=True):
    variable.assign(value)  # all processes must call this, because the value is an array over all devices
if run_dir and process == 0:
    network.save(run_dir / "model.keras")
    (run_dir / "labels.txt").write_text("".join(f"{name}\n" for name in training.names))
hpcrun.run.write_result(**{f"final_{name}": value for name, value in epoch_metrics.items()}, arch=args.arch)
