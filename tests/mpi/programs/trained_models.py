"""Checks of evaluation, of following a run and of fine-tuning; the first argument is a folder of images."""

import json
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from checks import assert_refused, run_checks

import hpcrun.train
from hpcrun.errors import HpcrunError
from hpcrun.train import follow_run, followers, images
from hpcrun.train.evaluation import Evaluator, make_batches, require_classes, top_k
from hpcrun.train.follow_run import list_models
from hpcrun.train.saved_model import SavedModel, image_size, to_probabilities

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


def check_grey_images_are_evaluated():
    model = keras.Sequential([keras.Input((8, 8, 1), dtype="uint8"), keras.layers.Flatten(), keras.layers.Dense(10)])
    grey = tf.image.rgb_to_grayscale(pixels).numpy()  # (n, 8, 8, 1)
    expected = float(np.mean(np.argmax(model.predict(grey, verbose=0), axis=1) == labels))
    found = Evaluator(model).evaluate(make_batches(validation, 16, model))
    assert (found.precision_at_1, found.examples) == (expected, len(labels))


def check_images_that_a_model_cannot_take_are_refused():
    shapes = ((8, 9, 3), (100,), (8, 8, 1))
    wide, flat, grey = (keras.Sequential([keras.Input(shape), keras.layers.Flatten()]) for shape in shapes)
    assert_refused("images of 8 x 9, which are not square", make_batches, validation, 16, wide)
    assert_refused("expected images of a fixed size", image_size, flat)
    assert_refused("images with 1 channel", image_size, grey, channels=[3])


def check_outputs_become_probabilities():
    def predict(outputs, units, activation):
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(units, activation=activation)])
        return to_probabilities(model, np.array(outputs, "float32")).tolist()

    assert predict([[0.25, 0.75]], 2, "softmax") == predict([[0.25, 0.75]], 2, "sigmoid") == [[0.25, 0.75]]
    assert predict([[0.75]], 1, "sigmoid") == [[0.25, 0.75]]
    assert predict([[3.0, 3.0]], 2, None) == [[0.5, 0.5]]
    assert_refused("the only output of the model is not a probability", predict, [[0.5]], 1, None)


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

    weights = {}  # of each epoch

    def train(first, last):
        callbacks = hpcrun.train.run_callbacks(validation.names, folder=run)
        callbacks += [keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, _: weights.update({epoch + 1: model.get_weights()}))]  # fmt: skip
        options = {"batch_size": 50, "initial_epoch": first - 1, "epochs": last, "verbose": 0}
        model.fit(pixels, labels, callbacks=callbacks, **options)

    train(1, 1)
    seen = []
    for saved in list_models(run, follow=True):
        seen.append((saved.epoch, list(saved.names) == validation.names))
        pairs = zip(hpcrun.train.load_model(saved.file).get_weights(), weights[saved.epoch], strict=True)
        assert all(np.array_equal(*pair) for pair in pairs), "the model of another epoch"
        hpcrun.train.barrier()
        if len(seen) == 1:
            train(2, 4)  # an evaluation that takes longer than epochs
        elif len(seen) == 4:
            train(5, 6)
            if hpcrun.train.is_chief():  # as after a failure
                end = {"exit_code": 1, "reason": "failed", "started": 1, "ended": 2}
                (run / "exit.json").write_text(json.dumps(end))
    assert seen == [(epoch, True) for epoch in range(1, 7)]
    hpcrun.train.barrier()  # rank 0 is the follower
    assert not list(run.glob("evaluated-*"))
    assert not (run / "followers").exists()


def check_only_registered_followers_get_models():
    run = folder.parent / "kept"
    if not hpcrun.train.is_chief():
        return
    run.mkdir()
    model = run / "model.keras"

    def kept():
        return sorted(str(file.relative_to(run)) for file in run.rglob("epoch-*/*"))

    follower = (
        "import sys, time; from pathlib import Path; from hpcrun.train.followers import Follower\n"
        "with Follower(Path(sys.argv[1]), sys.argv[2], best=False): print('ready', flush=True); time.sleep(600)"
    )
    where = {"HOME": str(run), "PATH": os.environ["PATH"], "PYTHONPATH": os.environ["PYTHONPATH"]}
    start = partial(subprocess.Popen, env=where, stdout=subprocess.PIPE, text=True)
    alive, killed = (start([sys.executable, "-c", follower, run, name]) for name in ("alive", "killed"))
    model.write_bytes(b"0")
    followers.keep_model(model, 1, is_best=True)
    for process in (alive, killed):
        assert process.stdout
        assert "ready\n" in process.stdout
    killed.kill()
    model.write_bytes(b"2")
    followers.keep_model(model, 2, is_best=True)
    assert kept() == [f"followers/{name}/epoch-2/model.keras" for name in ("alive", "killed")]
    killed.wait()
    registration = run / "followers/killed/registration.json"
    os.utime(registration, (0, registration.stat().st_mtime - followers.MAX_SECONDS_WITHOUT_RENEWAL))
    followers.keep_model(model, 3, is_best=False)
    assert kept() == [f"followers/alive/epoch-{epoch}/model.keras" for epoch in (2, 3)]
    os.truncate(model, shutil.disk_usage(run).free // 4)
    followers.keep_model(model, 4, is_best=False)
    assert len(kept()) == 2, "kept models may fill the disk"
    alive.kill()
    alive.wait()


def check_a_follower_of_the_best_models_gets_no_others():
    run = folder.parent / "best"
    if hpcrun.train.is_chief():
        run.mkdir()
        with followers.Follower(run, "best", best=True) as follower:
            for epoch in (1, 2, 3):
                (run / "model.keras").write_bytes(b"%d" % epoch)
                followers.keep_model(run / "model.keras", epoch, is_best=epoch == 2)
            assert list(follower.kept_models()) == [2]


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
