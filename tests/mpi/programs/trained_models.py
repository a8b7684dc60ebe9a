"""Checks of evaluation, of following a run and of fine-tuning; the first argument is a folder of images."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
from checks import assert_refused, run_checks

import hpcrun.train
from hpcrun.errors import HpcrunError
from hpcrun.train import follow_run, images
from hpcrun.train.evaluation import Evaluator, require_classes, top_k
from hpcrun.train.follow_run import list_models
from hpcrun.train.saved_model import SavedModel

hpcrun.train.init()
folder = Path(sys.argv[1])
validation = images.read_split(folder, "validation")
pixels, labels = (np.concatenate(parts) for parts in zip(*(
    (shard.data[0], shard.data[1]) for shard in validation.batches(10**6, 8)), strict=True))  # fmt: skip
if hpcrun.train.size() > 1:  # a shard of the only batch
    parts = hpcrun.train.comm().allgather((pixels, labels))
    pixels, labels = (np.concatenate(part) for part in zip(*parts, strict=True))


def network(**options):
    keras.utils.set_random_seed(3)
    layers = [keras.Input((8, 8, 3), dtype="uint8"), keras.layers.Rescaling(1 / 255), keras.layers.Flatten()]
    return keras.Sequential([*layers, keras.layers.Dense(10, **options)])


def counted(model):
    """Return both values, computed with NumPy over all samples."""
    order = np.argsort(-model.predict(pixels, verbose=0), axis=1, kind="stable")
    return float(np.mean(order[:, 0] == labels)), float(np.mean((order[:, :5] == labels[:, None]).any(axis=1)))


def check_all_samples_count_once():
    for batch_size, options in ((7, {"activation": "softmax"}), (512, {})):
        model = network(**options)
        expected = counted(model)
        found = Evaluator(model).evaluate(validation.batches(batch_size, 8))
        assert [found.precision_at_1, found.recall_at_5, found.examples] == [*expected, len(labels)]
        assert 0 < found.precision_at_1 < found.recall_at_5 < 1


def check_ties_and_nan_are_not_right():
    model = network(kernel_initializer="zeros")
    evaluator = Evaluator(model)
    found = evaluator.evaluate(validation.batches(16, 8))
    assert [found.precision_at_1, found.recall_at_5] == [np.mean(labels == 0), np.mean(labels < 5)]
    model.layers[-1].bias.assign(np.full(10, np.nan))
    assert evaluator.evaluate(validation.batches(16, 8)).recall_at_5 == 0


def check_counts_are_exact():
    metric = top_k(1, "precision_at_1")
    for weight in (2.0**24, 1.0):  # float32 has no 2^24 + 1
        metric.update_state([0], keras.ops.array([[1.0, 0.0]]), sample_weight=[weight])
    assert float(metric.count) == 2**24 + 1


def check_other_classes_are_refused():
    same, other = (SavedModel(Path(), tuple(f"{word}{k}" for k in range(10)), 1, {}) for word in ("", "number "))
    require_classes(network(), same, validation.names)
    assert_refused("'number 0' and '0'", require_classes, network(), other, validation.names)


def check_follow_yields_each_epoch_until_the_end():
    run = folder.parent / "run"
    if hpcrun.train.is_chief():
        run.mkdir()
        (run / "job.json").touch()
    hpcrun.train.barrier()
    model = hpcrun.train.Model(network())
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])

    def train(epoch):
        saves = hpcrun.train.run_callbacks(validation.names, folder=run)
        model.fit(pixels, labels, batch_size=50, initial_epoch=epoch, epochs=epoch + 1, verbose=0, callbacks=saves)

    train(0)
    seen = []
    for saved in list_models(run, follow=True):
        seen.append((saved.epoch, list(saved.names) == validation.names))
        same = [
            np.array_equal(*pair)
            for pair in zip(hpcrun.train.load_model(saved.file).get_weights(), model.get_weights(), strict=True)
        ]
        assert all(same), "another model than that of this epoch"
        hpcrun.train.barrier()
        if len(seen) < 3:
            train(len(seen))
        elif hpcrun.train.is_chief():  # as after a failure
            (run / "exit.json").write_text(json.dumps({"exit_code": 1, "reason": "failed", "started": 1, "ended": 2}))
    assert seen == [(1, True), (2, True), (3, True)]
    assert not list(run.glob("evaluated-*"))


def check_follow_ends_without_a_model():
    run = folder.parent / "cancelled"
    if hpcrun.train.is_chief():
        run.mkdir()
        (run / "job.json").touch()
        (run / "submitted.json").write_text(json.dumps({"job_id": "1", "cancelled": 5.0}))
    hpcrun.train.barrier()
    try:
        list(list_models(run, follow=True))
    except HpcrunError as error:
        assert "without a saved model: it was cancelled" in error.message  # noqa: PT017
    else:
        raise AssertionError
    assert_refused("is not a run directory", list, list_models(folder, follow=True))


def check_follow_ends_if_the_job_was_lost():
    run = folder.parent / "home" / "lost"
    if hpcrun.train.is_chief():
        where = {"HOME": str(run.parent), "PATH": os.environ["PATH"], "HPCRUN_RUN_DIR": ""}
        argv = [sys.executable, "-m", "hpcrun", "submit", "--site", "local", "--no-gpu", "--json", "--", "sleep", "600"]
        run.parent.mkdir()
        done = subprocess.run(argv, env=where, cwd=run.parent, capture_output=True, text=True, check=True)
        submission = json.loads(done.stdout)
        os.killpg(int(submission["job_id"]), signal.SIGKILL)  # as if its node had lost power
        run.symlink_to(submission["run_dir"])
        (run / "exit.json").unlink(missing_ok=True)
    hpcrun.train.barrier()
    follow_run.SECONDS_BETWEEN_QUERIES = 1
    try:
        list(list_models(run.resolve(), follow=True))
    except HpcrunError as error:
        assert "ended without a saved model: its job was lost (FAILED" in error.message, error.message  # noqa: PT017
    else:
        raise AssertionError


def pretrained(head):
    """Return a model in a model, that ends in a Dense or as MobileNet."""
    inside = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Conv2D(4, 3), keras.layers.BatchNormalization()])
    ends = {
        "dense": [keras.layers.Flatten(), keras.layers.Dense(10, name="top"), keras.layers.Softmax()],
        "convolution": [
            *(keras.layers.GlobalAveragePooling2D(keepdims=True), keras.layers.Conv2D(10, 1, name="top")),
            *(keras.layers.Reshape((10,)), keras.layers.Activation("softmax")),
        ],
    }
    images = keras.Input((8, 8, 3), dtype="uint8")
    x = inside(keras.layers.Rescaling(1 / 255)(images))
    for layer in ends[head]:
        x = layer(x)
    return keras.Model(images, x)


def check_fine_tuning_restores_all_but_the_last_layer():
    for head, freeze in (("dense", True), ("convolution", False)):
        model = pretrained(head)
        model.save(folder.parent / f"{head}-{hpcrun.train.rank()}.keras")
        loaded = hpcrun.train.load_model(folder.parent / f"{head}-{hpcrun.train.rank()}.keras")
        new = hpcrun.train.replace_head(loaded, 3, freeze=freeze)
        assert new.output_shape == (None, 3)
        assert new.inputs[0].dtype == "uint8"
        assert [w.path.split("/")[-2] for w in new.trainable_weights if w.shape[-1] == 3] == ["top", "top"]
        assert len(new.trainable_weights) == (2 if freeze else len(model.trainable_weights))
        kept = [pair for pair in zip(model.weights, new.weights, strict=True) if "top" not in pair[0].path]
        assert len(kept) == len(model.weights) - 2 == 6
        assert all(np.array_equal(old, weight) for old, weight in kept)
        assert np.allclose(new.predict(pixels[:4], verbose=0).sum(axis=1), 1)


def check_fine_tuning_trains_the_new_layer_alone():
    model = hpcrun.train.Model(hpcrun.train.replace_head(pretrained("dense"), 10, freeze=True))
    before = model.get_weights()
    model.compile("sgd", "sparse_categorical_crossentropy")
    model.fit(pixels, labels, batch_size=50, verbose=0)
    changed = [not np.array_equal(*pair) for pair in zip(before, model.get_weights(), strict=True)]
    assert changed == [False] * 6 + [True] * 2


def check_fine_tuning_refuses_other_models():
    images = keras.Input((8, 8, 3))
    words = "the model's last layer with weights is BatchNormalization"
    model = keras.Model(images, keras.layers.BatchNormalization()(keras.layers.Flatten()(images)))
    try:
        hpcrun.train.replace_head(model, 3)
    except HpcrunError as error:
        assert words in error.message  # noqa: PT017
    else:
        raise AssertionError


failed = run_checks(__name__)
print("RESULT", json.dumps({"failed": failed, "size": hpcrun.train.size()}), flush=True)
