"""ResNet-50 on ImageNet or the user's images with PyTorch's DistributedDataParallel: NCCL on GPUs, gloo on CPUs.

The defaults are the recipe of Goyal et al., "Accurate, Large Minibatch SGD" (arXiv:1706.02677, sections 2 and 5.1), as
for the workload resnet50: a learning rate of 0.1 per 256 images of the batch with a warm-up of 5 epochs, a tenth of the
rate after 30, 60 and 80 of 90 epochs, and a weight decay of 0.0001.
"""

from __future__ import annotations

import math
import os
import sys
import time
from typing import TYPE_CHECKING

import hpcrun.run
from hpcrun.data import decoders
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Callable

args = hpcrun.run.options(__file__)
hpcrun.run.checkpoint_requested()  # from here on, stop signals are recorded and do not end this process
data_dir = args.data_dir or os.environ.get("HPCRUN_DATA_IMAGENET")
if not (args.synthetic_data or data_dir):
    sys.exit(
        "ERROR: resnet50-torch has no images: give --data-dir (or $HPCRUN_DATA_IMAGENET) or --synthetic-data\n"
        "HINT: --data-dir FOLDER trains on its images, --synthetic-data on random ones, to measure speed only"
    )

pool = decoders.start(0 if args.synthetic_data else args.workers)  # fork before the import of PyTorch

import images  # noqa: E402  (the module in this folder)
import networks  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

# Ranks: hpcrun or torchrun has set the variables that PyTorch reads; a single process needs a process group of size
# one.
has_gpu = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count() if has_gpu else 0)
if has_gpu:
    torch.cuda.set_device(device)
    torch.backends.cudnn.benchmark = True
else:
    device = torch.device("cpu")
local_group = (
    {} if int(os.environ.get("WORLD_SIZE", "1")) > 1 else {"store": dist.HashStore(), "rank": 0, "world_size": 1}
)
dist.init_process_group("nccl" if has_gpu else "gloo", **local_group)
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(args.seed)

# Data: (b, 224, 224, 3) uint8 and (b,) classes from 0; a rank reads and decodes only its own samples.
if args.synthetic_data:
    training = images.RandomImages(args.train_num_samples or 2560, args.image_size, args.num_classes, args.seed)
    validation = images.RandomImages(args.val_num_samples or 256, args.image_size, args.num_classes, args.seed + 1)
else:
    try:
        training = images.read_split(data_dir, "train", args.image_size, args.augment, args.train_num_samples)
        validation = images.read_split(data_dir, "validation", args.image_size, "none", args.val_num_samples)
    except HpcrunError as error:
        sys.exit(f"ERROR: {error}")
epochs, steps = args.train_epochs, len(training) // args.batch_size
if not steps or args.batch_size < ranks:
    sys.exit(
        f"ERROR: --batch-size={args.batch_size} does not fit {len(training)} training images and {ranks} ranks\n"
        "HINT: it is the number of images of a step over all ranks; the last, smaller batch is left out"
    )

# Model and optimizer
network = networks.ResNet(args.arch, len(training.names)).to(device, memory_format=torch.channels_last)
if args.sync_batch_norm and has_gpu:  # PyTorch has no SyncBatchNorm for CPUs
    network = torch.nn.SyncBatchNorm.convert_sync_batchnorm(network)
optimizer = torch.optim.SGD(networks.split_parameters(network, args.weight_decay), momentum=args.momentum)
scaler = torch.amp.GradScaler(device.type, enabled=args.precision == "mixed_float16")
half_dtype = {"mixed_float16": torch.float16, "mixed_bfloat16": torch.bfloat16}.get(args.precision)
scale = args.batch_size / 256  # k in the paper: the learning rate is proportional to the batch size
warmup = (min(5, epochs * 5 / 90) if args.warmup_epochs is None else args.warmup_epochs) if scale > 1 else 0
decay = hpcrun.run.decay(args.schedule, epochs)


def learning_rate(epochs_done: float) -> float:
    """Return the learning rate after a number of epochs, such as 1.5."""
    if epochs_done < warmup:
        return args.learning_rate * (1 + (scale - 1) * epochs_done / warmup)
    return args.learning_rate * scale * decay(math.floor(epochs_done))


# Checkpoint: rank 0 writes the file, and all ranks read the file when the job restarts.
file = (run_dir := hpcrun.run.run_dir()) and run_dir / "checkpoints" / "training.pt"
epoch, step, epoch_metrics = 0, 0, {}  # completed epochs, completed steps of the next epoch, metrics of the last epoch
METRICS = ("loss", "accuracy", "top_5_accuracy")
totals = torch.zeros(4, dtype=torch.float64, device=device)  # sums over an epoch of these metrics, and of the images
if file and file.exists():
    checkpoint = torch.load(file, map_location=device, weights_only=True)
    network.load_state_dict(checkpoint["network"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    scaler.load_state_dict(checkpoint["scaler"])
    epoch, step, epoch_metrics = checkpoint["epoch"], checkpoint["step"], checkpoint["last"]
    if rank == 0:
        totals += checkpoint["totals"]
        print(f"from {file}: {epoch} epochs and {step} batches of the next epoch are done", flush=True)
model = DistributedDataParallel(network)


def save(epoch: int, step: int) -> None:
    """Replace the checkpoint on rank 0; all ranks must call this function."""
    totals_of_ranks = totals.clone()
    dist.all_reduce(totals_of_ranks)
    average_statistics()
    if file and rank == 0:
        file.parent.mkdir(exist_ok=True)
        state = {"network": network.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}
        temporary_file = file.with_name(".training.pt")
        torch.save(
            {**state, "epoch": epoch, "step": step, "last": epoch_metrics, "totals": totals_of_ranks}, temporary_file
        )
        temporary_file.replace(file)


def average_statistics() -> None:
    """Average the statistics of batch normalization over the ranks; each rank's statistics are those of its shards."""
    for buffer in network.buffers():
        if buffer.is_floating_point():
            dist.all_reduce(buffer.div_(ranks))


def share_stop_signal() -> Callable[[], int]:
    """Return a function that returns the stop signal that a rank has received, or 0: the same on all ranks.

    The returned function waits for the GPU. Called a step later, it does not delay the GPU.
    """
    signal_number = torch.full((), hpcrun.run.checkpoint_requested(), device=device)
    dist.all_reduce(signal_number, dist.ReduceOp.MAX)
    host_copy = signal_number.to("cpu", non_blocking=True)
    event = torch.cuda.Event() if has_gpu else None
    if event:
        event.record()

    def wait() -> int:
        if event:
            event.synchronize()
        return int(host_copy)

    return wait


def predict(module: torch.nn.Module, pixels: torch.Tensor) -> torch.Tensor:
    """Return the logits (b, classes) of images (b, 224, 224, 3)."""
    x = pixels.to(device, non_blocking=True).permute(0, 3, 1, 2).float() / 127.5 - 1  # (b, 3, 224, 224), -1 to 1
    with torch.autocast(device.type, half_dtype, enabled=half_dtype is not None):
        return module(x).float()


def measure(logits: torch.Tensor, y: torch.Tensor, losses: torch.Tensor) -> torch.Tensor:
    """Return the sum of losses, and the numbers of correct predictions, of those in the top 5, and of images."""
    is_correct = logits.topk(min(5, logits.shape[1])).indices == y[:, None]  # (b, 5)
    counts = (is_correct[:, 0].sum(), is_correct.sum(), torch.full((), len(y), device=device))
    return torch.stack([losses.detach(), *counts]).double()


def summarize(prefix: str = "") -> dict[str, float]:
    """Return the metrics of an epoch over all ranks, and set the sums to 0; all ranks must call this function."""
    dist.all_reduce(totals)
    *sums, count = totals.tolist()
    totals.zero_()
    return {prefix + name: value / count for name, value in zip(METRICS, sums, strict=True)}


saved_at = time.monotonic()
while epoch < epochs:
    start_time, first_step = time.perf_counter(), step
    model.train()
    stop_signal = share_stop_signal()
    batches = images.batches(training, args.batch_size, pool, args.seed + epoch, shuffle=True, first_batch=first_step)
    for pixels, labels in batches:
        y = labels.to(device, non_blocking=True)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(epoch + step / steps)
        logits = predict(model, pixels)
        losses = cross_entropy(logits, y, reduction="sum", label_smoothing=args.label_smoothing)
        optimizer.zero_grad()
        # DDP averages gradients over the ranks. This factor makes the result the gradient of the mean loss over the
        # batch, even if shards differ in size.
        scaler.scale(losses * (ranks / args.batch_size)).backward()
        scaler.step(optimizer)
        scaler.update()
        totals += measure(logits, y, losses)
        step += 1
        progress = {"epoch": epoch + 1, "epochs": epochs, "step": step, "steps": steps, "batch_size": args.batch_size}
        hpcrun.run.heartbeat(**progress, loss=losses / len(y))
        if args.log_every and step % args.log_every == 0 and rank == 0:
            rate = (step - first_step) * args.batch_size / (time.perf_counter() - start_time)
            print(f"step {epoch * steps + step}, loss = {losses / len(y):.2f} ({rate:.1f} images/s)", flush=True)
        signal_number, stop_signal = stop_signal(), share_stop_signal()
        if signal_number and step < steps:
            save(epoch, step)
            if rank == 0:
                print(f"stopped in epoch {epoch + 1}, after {step} batches; start it again to continue", flush=True)
            sys.exit(128 + signal_number)

    rate = (step - first_step) * args.batch_size / (time.perf_counter() - start_time)
    average_statistics()
    epoch_metrics = summarize()
    if (epoch + 1) % args.val_freq == 0:
        hpcrun.run.heartbeat(phase="validation")
        network.eval()
        with torch.no_grad():
            for pixels, labels in images.batches(validation, args.batch_size, pool, 0, shuffle=False):
                if len(labels):
                    y = labels.to(device)
                    logits = predict(network, pixels)
                    totals += measure(logits, y, cross_entropy(logits, y, reduction="sum"))
        epoch_metrics |= summarize("val_")
    epoch, step = epoch + 1, 0
    seconds = time.perf_counter() - start_time
    hpcrun.run.log_metrics(epoch, epochs, **epoch_metrics, images_per_second=rate, seconds=round(seconds, 3))
    signal_number = share_stop_signal()()
    is_due = torch.tensor(time.monotonic() - saved_at > 600, device=device)
    dist.broadcast(is_due, 0)
    if signal_number or is_due or epoch == epochs:
        save(epoch, 0)
        saved_at = time.monotonic()
    if signal_number and epoch < epochs:
        sys.exit(128 + signal_number)

hpcrun.run.heartbeat(phase="trained")
if run_dir and rank == 0:
    torch.save(network.state_dict(), run_dir / "model.pt")  # with torchvision's layer names
    (run_dir / "labels.txt").write_text("".join(f"{name}\n" for name in training.names))
hpcrun.run.write_result(**{f"final_{name}": value for name, value in epoch_metrics.items()}, arch=args.arch)
dist.destroy_process_group()
