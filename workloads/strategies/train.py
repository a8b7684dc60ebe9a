"""LeNet-5 or ResNet-50 with each distribution strategy of TensorFlow, and with hpcrun.train (docs/strategies.md).

hpcrun sets a TF_CONFIG with one worker per rank; the strategy with parameter servers replaces it.
"""

# hpcrun: framework=tensorflow  # noqa: ERA001  (this line selects the variables that each rank gets)
from __future__ import annotations

import os
import sys

import hpcrun.train

args = hpcrun.train.options(__file__)
rank, ranks = int(os.environ.get("HPCRUN_RANK", "0")), int(os.environ.get("HPCRUN_NTASKS", "1"))
if args.strategy == "hpcrun":
    hpcrun.train.init()  # start MPI before TensorFlow

import keras  # noqa: E402
import networks  # noqa: E402  (this module and the following ones are in the folder of this file)
import parameter_server  # noqa: E402
import synchronous  # noqa: E402
import tensorflow as tf  # noqa: E402
from checkpoint import Checkpoint  # noqa: E402
from roles import read_addresses  # noqa: E402
from steps import Training  # noqa: E402

import hpcrun.run  # noqa: E402
from hpcrun.train.ranks.independent_ranks import record_query  # noqa: E402

keras.utils.set_random_seed(args.seed)
images, validation_images = networks.load(args)


def build() -> tuple[keras.Model, keras.optimizers.Optimizer]:
    """Return the network and its optimizer, with all their variables."""
    network = networks.build(args.model, images.x.shape[1:], images.classes)
    sgd = keras.optimizers.SGD(args.learning_rate, momentum=0.9)
    sgd.build(network.trainable_variables)
    return network, sgd


if args.strategy == "hpcrun":  # Keras's fit contains the training loop
    network, optimizer = build()
    model = hpcrun.train.Model(network)
    model.compile(optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    batches = hpcrun.train.dataset(images.x, images.y, batch_size=args.batch_size, shuffle=True, seed=args.seed)
    validation = hpcrun.train.dataset(validation_images.x, validation_images.y, batch_size=256)
    logs = model.fit(batches, epochs=args.epochs, validation_data=validation).history
    hpcrun.train.write_result(strategy=args.strategy, model=args.model, **{name: logs[name][-1] for name in logs})
    sys.exit()

addresses = read_addresses() if ranks > 1 else ["localhost:0"]
role = None
if args.strategy == "parameter-server":
    role, connection = parameter_server.start_cluster(args, addresses, rank)
# without GPUs, divide the CPU into logical devices
elif args.strategy == "mirrored" and not tf.config.list_physical_devices("GPU"):
    logical_devices = [tf.config.LogicalDeviceConfiguration()] * (args.replicas or 2)
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], logical_devices)

hpcrun.run.heartbeat(epochs=args.epochs, phase="starting")
if role and role.job in {"worker", "ps"}:
    connection.is_done(seconds=None)
    connection.leave()
    os._exit(0)  # the threads of TensorFlow's server never end

if args.strategy == "multiworker":
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
elif args.strategy == "mirrored":
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    strategy = tf.distribute.MirroredStrategy([device.name for device in devices[: args.replicas or None]])
elif role and role.job == "chief":
    strategy = tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
else:
    strategy = tf.distribute.get_strategy()  # the strategy `one` and the evaluator use a single process
replicas = strategy.num_replicas_in_sync
if args.batch_size % replicas:
    raise hpcrun.train.HpcrunError(
        f"--batch-size={args.batch_size} cannot be divided evenly over {replicas} replicas",
        hint=f"--batch-size {-(-args.batch_size // replicas) * replicas}, or --strategy hpcrun, which takes any",
    )

with strategy.scope():
    network, optimizer = build()
checkpoint = Checkpoint(hpcrun.run.run_dir(), [*network.variables, *optimizer.variables], writes=rank == 0)
shard = (ranks, rank) if args.strategy == "multiworker" else (1, 0)
training = Training(args, strategy, network, optimizer, images, validation_images, shard, checkpoint)

if not role or role.job == "chief":
    hpcrun.run.checkpoint_requested()  # from here on, stop signals are recorded and do not end this process
if role and role.job == "evaluator":
    parameter_server.follow(training, connection)
elif role:
    connection.await_ranks()
    record_query()  # start MPI on all ranks, including the evaluator, which is not in TensorFlow's cluster
    metrics = parameter_server.train(training, connection) | connection.finish()
else:
    metrics = {"replicas": replicas, **synchronous.train(training)}
if not role or role.job == "chief":
    hpcrun.run.heartbeat(phase="trained")
    hpcrun.run.write_result(strategy=args.strategy, model=args.model, **metrics)
