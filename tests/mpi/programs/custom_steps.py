"""Custom training steps, as in Keras's guides and examples: all ranks give the results of one process."""

# ruff: noqa: E402  (hpcrun.train.init() comes before Keras, as in every script)

import json
import sys
from functools import partial
from typing import Any

import hpcrun.train

hpcrun.train.init()

import keras
import numpy as np
import tensorflow as tf
from cases import data, logs, weights
from checks import on_one_rank, run_checks
from keras import layers, ops

from hpcrun.train.ranks.world import world

x, y = data(21)  # in batches of 9, 9 and 3, each uneven on two ranks
x_test, y_test = data(10)
targets, targets_test = x[:, :2] * 2, x_test[:, :2] * 2
fit_arguments: dict[str, Any] = {"batch_size": 9, "shuffle": False, "epochs": 2, "verbose": 0}


def flat(tree):
    return np.concatenate([np.ravel(np.asarray(each, "float64")) for each in keras.tree.flatten(tree)])


def assert_close(found, expected, tolerance=2e-6):
    np.testing.assert_allclose(flat(found), flat(expected), rtol=tolerance, atol=tolerance)


def assert_equal_weights(model):
    assert len(set(world().comm.allgather(weights(model).tobytes()))) == 1


def both(build, train, *, synchronized=False):
    """Train plain Keras on one rank, and hpcrun.train on all; return the results of `train`.

    A plain model with synchronized layers is trained on all ranks: these wait for each other in any model.
    """

    def seeded(wrap):
        keras.utils.set_random_seed(1)
        return train(wrap(build()))

    plain = partial(seeded, lambda model: model)
    return plain() if synchronized else on_one_rank(plain), seeded(hpcrun.train.Model)


def same(build, compile_, fit, tolerance=2e-6, figures=1e-5, *, synchronized=False):
    """Check that hpcrun.train ends with the weights and metrics of one process; return the metrics."""

    def train(model):
        compile_(model)
        history = fit(model)
        if isinstance(model, hpcrun.train.Model):
            assert_equal_weights(model)
        return weights(model), logs(history) if isinstance(history, keras.callbacks.History) else history

    (plain, expected), (local, found) = both(build, train, synchronized=synchronized)
    assert_close(local, plain, tolerance)
    assert set(found) == set(expected)
    for name in expected:
        assert_close(found[name], expected[name], figures)
    return found


def sgd(model, **options):
    model.compile(keras.optimizers.SGD(0.1), **options)


def regression(kind, **options):
    inputs = keras.Input((6,))
    return kind(inputs, layers.Dense(2)(layers.Dense(8, activation="tanh")(inputs)), **options)


def take_step(model, loss, tape, variables=None):
    variables = model.trainable_variables if variables is None else variables
    model.optimizer.apply(tape.gradient(loss, variables), variables)


def feed_metrics(model, loss, *figures, **options):
    for metric in model.metrics:
        if metric.name == "loss":
            metric.update_state(loss)
        else:
            metric.update_state(*figures, **options)
    return {metric.name: metric.result() for metric in model.metrics}


class GuidesSteps:
    """The first example of Keras's guide, with its own evaluation."""

    def train_step(self: Any, data):  # a method of a Keras model
        x, y, weight = data if len(data) == 3 else (*data, None)
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=predicted, sample_weight=weight)
        take_step(self, loss, tape)
        return feed_metrics(self, loss, y, predicted, sample_weight=weight)

    def test_step(self: Any, data):
        x, y = data
        predicted = self(x, training=False)
        return feed_metrics(self, self.compute_loss(y=y, y_pred=predicted), y, predicted)


class Guide(GuidesSteps, keras.Model):
    """The same model with built layers."""


class Subclass(GuidesSteps, keras.Model):
    """The same model with layers that are built in their first call."""

    def __init__(self):
        super().__init__()
        self.inner = keras.Sequential([layers.Dense(8, activation="tanh"), layers.Dense(2)])

    def call(self, x):
        return self.inner(x)


def check_keras_guide_step():
    weight = np.random.default_rng(3).uniform(size=len(x)).astype("float32")
    ways: tuple[dict[str, Any], ...] = ({}, {"run_eagerly": True}, {"jit_compile": True}, {"steps_per_execution": 2})
    for build in (lambda: regression(Guide), Subclass):
        for options in ways if build is not Subclass else ways[:2]:
            found = same(
                build,
                lambda model, options=options: sgd(model, loss="mse", metrics=["mae"], **options),
                lambda model: model.fit(x, targets, validation_data=(x_test, targets_test), **fit_arguments),
            )
            assert set(found) == {"loss", "mae", "val_loss", "val_mae"}, found
    for more in ({"sample_weight": weight}, {"class_weight": {0: 0.5, 1: 2.0, 2: 1.0}}):
        same(
            lambda: regression(Guide),
            lambda model: sgd(model, loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True)),
            lambda model, more=more: model.fit(x, y.clip(0, 1), **fit_arguments, **more),
        )


def check_keras_guide_evaluation():
    def train(model):
        sgd(model, loss="mse", metrics=["mae"])
        found = model.evaluate(x, targets, batch_size=9, verbose=0, return_dict=True)
        return {"all": found, "list": model.evaluate(x, targets, batch_size=9, verbose=0)}

    for build in (lambda: regression(Guide), Subclass):
        expected, found = both(build, train)
        assert_close(found["all"], expected["all"])
        assert_close(found["list"], expected["list"])


class Decorated(Subclass):
    """Steps that are a `tf.function` each, whose graph serves batches of all sizes."""

    @tf.function
    def train_step(self, data):
        return super().train_step(data)

    @tf.function
    def test_step(self, data):
        return super().test_step(data)


class DecoratedAndNormalized(Decorated):
    def __init__(self):
        super().__init__()
        self.norm = layers.BatchNormalization(synchronized=True)

    def call(self, x, training=None):
        return self.norm(self.inner(x), training=training)


def check_decorated_steps():
    weight = np.random.default_rng(3).uniform(size=len(x)).astype("float32")
    weighted = keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")
    ways: tuple[dict[str, Any], ...] = ({}, {"steps_per_execution": 2}, {"jit_compile": True})
    for build in (Decorated, DecoratedAndNormalized):
        for options in ways if build is Decorated else ways[:2]:
            same(
                build,
                lambda model, options=options: sgd(model, loss=weighted, metrics=["mae"], **options),
                lambda model: model.fit(
                    x, targets, sample_weight=weight, validation_data=(x_test, targets_test), **fit_arguments
                ),
                5e-6,
                synchronized=build is DecoratedAndNormalized,
            )


class LossWithoutTraining(keras.Model):
    """Overrides `compute_loss` without the argument `training`, as before Keras 3.3."""

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
        return ops.mean((y - y_pred) ** 2)


def check_compute_loss_without_training():
    same(
        lambda: regression(LossWithoutTraining),
        lambda model: sgd(model, loss="mse"),
        lambda model: model.fit(x, targets, **fit_arguments),
    )


class LowLevel(keras.Model):
    """The second example: a loss and metrics that `compile` does not know."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.loss_tracker, self.mae = keras.metrics.Mean(name="loss"), keras.metrics.MeanAbsoluteError(name="mae")
        self.loss_function = keras.losses.MeanSquaredError()

    @property
    def metrics(self):
        return [self.loss_tracker, self.mae]

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = self.loss_function(y, predicted)
        take_step(self, loss, tape)
        self.loss_tracker.update_state(loss)
        self.mae.update_state(y, predicted)
        return {"loss": self.loss_tracker.result(), "mae": self.mae.result()}


def check_a_lower_level_step():
    same(lambda: regression(LowLevel), sgd, lambda model: model.fit(x, targets, **fit_arguments))


class ThreeInputs(keras.Model):
    """Unpacks a batch that is not (x, y, sample_weight)."""

    def __init__(self):
        super().__init__()
        self.both, self.head = layers.Dense(4, activation="tanh"), layers.Dense(2)

    def call(self, inputs):
        one, other = inputs
        return self.head(self.both(one) * self.both(other))

    def train_step(self, data):
        one, other, y = data
        with tf.GradientTape() as tape:
            predicted = self((one, other), training=True)
            loss = self.compute_loss(y=y, y_pred=predicted)
        take_step(self, loss, tape)
        return feed_metrics(self, loss, y, predicted)

    def test_step(self, data):
        one, other, y = data
        predicted = self((one, other))
        return feed_metrics(self, self.compute_loss(y=y, y_pred=predicted), y, predicted)


def check_custom_batch_structure():
    three = tf.data.Dataset.from_tensor_slices((x[:, :3], x[:, 3:], targets)).batch(9)

    def train(model):
        found = logs(model.fit(three, validation_data=three, epochs=2, verbose=0))
        return found | {"evaluated": model.evaluate(three, verbose=0, return_dict=True)}

    same(ThreeInputs, lambda model: sgd(model, loss="mse", metrics=["mae"]), train)
    dicts = three.map(lambda one, other, y: {"images": (one, other), "labels": y})

    class Dicts(ThreeInputs):
        def train_step(self, data):
            return super().train_step((*data["images"], data["labels"]))

    same(Dicts, lambda model: sgd(model, loss="mse"), lambda model: model.fit(dicts, epochs=2, verbose=0))

    class Annealed(ThreeInputs):
        """Gets the number of the batch first, as a scalar."""

        def train_step(self, data):
            number, (one, other, y) = data
            return super().train_step((one / (1 + number), other, y))

        def test_step(self, data):
            return super().test_step(data[1])

    numbered = tf.data.Dataset.zip(tf.data.Dataset.range(3, output_type=tf.float32), three)

    def train_and_evaluate(model):
        found = logs(model.fit(numbered, validation_data=numbered, epochs=2, verbose=0))
        return found | {"evaluated": model.evaluate(numbered, verbose=0, return_dict=True)}

    same(Annealed, lambda model: sgd(model, loss="mse"), train_and_evaluate)


class OwnTargets(keras.Model):
    """An autoencoder: `fit` gets the inputs alone, which are also the targets."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = layers.Dense(3, activation="tanh"), layers.Dense(6)

    def call(self, x):
        return self.decoder(self.encoder(x))

    def targets(self, x):
        return x, x

    def both_steps(self, data):
        x, target = self.targets(data[0] if isinstance(data, tuple) else data)
        predicted = self(x, training=True)
        return target, predicted, self.compute_loss(x, target, predicted)

    def train_step(self, data):
        with tf.GradientTape() as tape:
            target, predicted, loss = self.both_steps(data)
        take_step(self, loss, tape)
        return feed_metrics(self, loss, target, predicted)

    def test_step(self, data):
        target, predicted, loss = self.both_steps(data)
        return feed_metrics(self, loss, target, predicted)


class MaskedAutoencoder(OwnTargets):
    """Gets every other number of a sample and predicts the rest."""

    def targets(self, x):
        return x * tf.constant([1.0, 0, 1, 0, 1, 0]), x


class MaskedWords(OwnTargets):
    """A masked language model; word 0 is the mask."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = layers.Embedding(12, 4), layers.Dense(12)

    def targets(self, words):
        return tf.where(words % 3 == 0, tf.zeros_like(words), words), words


def check_custom_step_targets():
    for build in (OwnTargets, MaskedAutoencoder):
        same(
            build,
            lambda model: sgd(model, loss="mse", metrics=["mae"]),
            lambda model: model.fit(x, validation_data=(x_test,), **fit_arguments),
        )

    def built():
        inputs = keras.Input((6,))
        model = OwnTargets()
        model(inputs)
        return model

    same(built, lambda model: sgd(model, loss="mse"), lambda model: model.fit(x, **fit_arguments))
    words = np.abs(x * 4).astype("int32") % 12
    batches = tf.data.Dataset.from_tensor_slices(words).batch(9)
    for given in ((batches,), (words, None, 8)):
        same(
            MaskedWords,
            lambda model: sgd(model, loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True)),
            lambda model, given=given: model.fit(*given, epochs=2, shuffle=False, verbose=0),
        )


class Trackers(keras.Model):
    """Base class of the examples with several losses."""

    names: tuple[str, ...] = ()

    def __init__(self):
        super().__init__()
        self.trackers = [keras.metrics.Mean(name=name) for name in self.names]

    @property
    def metrics(self):
        return self.trackers

    def track(self, *losses):
        for tracker, loss in zip(self.trackers, losses, strict=True):
            tracker.update_state(loss)
        return {tracker.name: tracker.result() for tracker in self.trackers}


def noise(x):
    """Return noise derived from the sample, since the generators of ranks differ."""
    return tf.sin(100 * x)


class VAE(Trackers):
    names = ("loss", "reconstruction_loss", "kl_loss")

    def __init__(self, *, draw=False):
        super().__init__()
        self.encoder, self.decoder = keras.Sequential([layers.Dense(4)]), keras.Sequential([layers.Dense(6)])
        self.seeds, self.draw = keras.random.SeedGenerator(7), draw

    def train_step(self, data):
        x = data[0] if isinstance(data, tuple) else data
        with tf.GradientTape() as tape:
            mean, spread = tf.split(self.encoder(x), 2, axis=-1)
            drawn = keras.random.normal(tf.shape(mean), seed=self.seeds) if self.draw else noise(x)[:, :2]
            rebuilt = self.decoder(mean + tf.exp(0.5 * spread) * drawn)
            reconstruction = tf.reduce_mean(tf.reduce_sum(tf.square(x - rebuilt), axis=-1))
            divergence = tf.reduce_mean(tf.reduce_sum(-0.5 * (1 + spread - mean**2 - tf.exp(spread)), axis=1))
            total = reconstruction + divergence
        take_step(self, total, tape, self.trainable_weights)
        return self.track(total, reconstruction, divergence)


class SimSiam(Trackers):
    names = ("loss",)

    def __init__(self):
        super().__init__()
        self.encoder = keras.Sequential([layers.Dense(6, activation="relu"), layers.Dense(4)])
        self.predictor = keras.Sequential([layers.Dense(4)])

    def train_step(self, data):
        one, other = data
        with tf.GradientTape() as tape:
            z1, z2 = self.encoder(one), self.encoder(other)
            p1, p2 = self.predictor(z1), self.predictor(z2)
            loss = sum(
                -tf.reduce_mean(tf.reduce_sum(ops.normalize(p) * tf.stop_gradient(ops.normalize(z)), axis=1)) / 2
                for p, z in ((p1, z2), (p2, z1))
            )
        take_step(self, loss, tape, self.encoder.trainable_variables + self.predictor.trainable_variables)
        return self.track(loss)


class GAN(Trackers):
    names = ("d_loss", "g_loss")

    def __init__(self, *, draw=False):
        super().__init__()
        self.discriminator = keras.Sequential([keras.Input((6,)), layers.Dense(4, activation="tanh"), layers.Dense(1)])
        self.generator = keras.Sequential([layers.Dense(6)])
        self.seeds, self.draw = keras.random.SeedGenerator(1337), draw

    def compile(self, d_optimizer, g_optimizer, loss_function):
        super().compile()
        self.d_optimizer, self.g_optimizer, self.loss_function = d_optimizer, g_optimizer, loss_function

    def latent(self, x):
        shape = (tf.shape(x)[0], 3)
        return keras.random.normal(shape, seed=self.seeds) if self.draw else noise(x)[:, :3]

    def train_step(self, real):
        real = real[0] if isinstance(real, tuple) else real
        fake = self.generator(self.latent(real))
        ones = tf.ones((tf.shape(real)[0], 1))
        with tf.GradientTape() as tape:
            guesses = self.discriminator(tf.concat([fake, real], axis=0))
            d_loss = self.loss_function(tf.concat([ones, 0 * ones], axis=0), guesses)
        variables = self.discriminator.trainable_weights
        self.d_optimizer.apply(tape.gradient(d_loss, variables), variables)
        with tf.GradientTape() as tape:
            g_loss = self.loss_function(0 * ones, self.discriminator(self.generator(self.latent(real))))
        variables = self.generator.trainable_weights
        self.g_optimizer.apply(tape.gradient(g_loss, variables), variables)
        return self.track(d_loss, g_loss)


class WassersteinGAN(GAN):
    def train_step(self, real):
        real = real[0] if isinstance(real, tuple) else real
        for _ in range(3):
            with tf.GradientTape() as tape:
                fake = self.generator(self.latent(real), training=True)
                cost = tf.reduce_mean(self.discriminator(fake)) - tf.reduce_mean(self.discriminator(real))
                with tf.GradientTape() as inner:
                    between = real + 0.5 * (fake - real)
                    inner.watch(between)
                    guesses = self.discriminator(between, training=True)
                norms = tf.sqrt(tf.reduce_sum(tf.square(inner.gradient(guesses, between)), axis=1))
                d_loss = cost + 10 * tf.reduce_mean((norms - 1.0) ** 2)
            variables = self.discriminator.trainable_variables
            self.d_optimizer.apply_gradients(zip(tape.gradient(d_loss, variables), variables, strict=True))
        with tf.GradientTape() as tape:
            g_loss = -tf.reduce_mean(self.discriminator(self.generator(self.latent(real))))
        variables = self.generator.trainable_variables
        self.g_optimizer.apply_gradients(zip(tape.gradient(g_loss, variables), variables, strict=True))
        return self.track(d_loss, g_loss)


def check_examples_with_custom_losses():
    def two(model):
        loss = keras.losses.BinaryCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.05), keras.optimizers.SGD(0.05), loss)

    views = tf.data.Dataset.zip(*(tf.data.Dataset.from_tensor_slices(view).batch(9) for view in (x, 0.9 * x + 0.1)))
    same(VAE, sgd, lambda model: model.fit(x, **fit_arguments))
    same(SimSiam, sgd, lambda model: model.fit(views, epochs=2, verbose=0))
    same(GAN, two, lambda model: model.fit(x, **fit_arguments), 5e-6)
    same(WassersteinGAN, two, lambda model: model.fit(x, **fit_arguments), 5e-6, 5e-5)
    for build, compile_ in ((lambda: VAE(draw=True), sgd), (lambda: GAN(draw=True), two)):
        model = hpcrun.train.Model(build())
        compile_(model)
        model.fit(x, **fit_arguments)
        assert_equal_weights(model)


class Distiller(keras.Model):
    """Two models: the student's loss includes the teacher's output."""

    def __init__(self, student, teacher):
        super().__init__()
        self.student, self.teacher = student, teacher

    def compile(self, optimizer, metrics, student_loss, distillation_loss):
        super().compile(optimizer=optimizer, metrics=metrics)
        self.student_loss, self.distillation_loss = student_loss, distillation_loss

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        printed = self.teacher(x, training=False)
        own = self.student_loss(y, y_pred)
        soft = self.distillation_loss(ops.softmax(printed / 3, axis=1), ops.softmax(y_pred / 3, axis=1)) * 9
        return 0.1 * own + 0.9 * soft

    def call(self, x):
        return self.student(x)


def check_distillation():
    def build():
        teacher = keras.Sequential([keras.Input((6,)), layers.Dense(3)])
        teacher.trainable = False
        return Distiller(keras.Sequential([keras.Input((6,)), layers.Dense(3)]), teacher)

    def compile_(model):
        losses = keras.losses.SparseCategoricalCrossentropy(from_logits=True), keras.losses.KLDivergence()
        model.compile(keras.optimizers.SGD(0.1), ["accuracy"], *losses)

    same(build, compile_, lambda model: model.fit(x, y, validation_data=(x_test, y_test), **fit_arguments))


class Accumulates(Subclass):
    """Accumulates the gradients of two batches by hand, and takes one step with them."""

    def __init__(self):
        super().__init__()
        self.inner.build((None, 6))
        self.steps = tf.Variable(0, trainable=False)
        self.sums = [tf.Variable(tf.zeros(v.shape), trainable=False) for v in self.inner.trainable_variables]

    def train_step(self, data):
        x, y = data
        self.steps.assign_add(1)
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=predicted)
        for total, gradient in zip(self.sums, tape.gradient(loss, self.trainable_variables), strict=True):
            total.assign_add(gradient)
        tf.cond(tf.equal(self.steps % 2, 0), self.step_with_the_sums, lambda: None)
        return feed_metrics(self, loss, y, predicted)

    def step_with_the_sums(self):
        self.optimizer.apply(self.sums, self.trainable_variables)
        for total in self.sums:
            total.assign(tf.zeros_like(total))


def check_gradient_accumulation_by_hand():
    same(
        Accumulates,
        lambda model: sgd(model, loss="mse", metrics=["mae"]),
        lambda model: model.fit(x[:20], targets[:20], **fit_arguments | {"batch_size": 5}),
    )


class LearnsToLearn(Subclass):
    """A nested step: the outer gradient passes through an inner one of this rank's samples."""

    def train_step(self, data):
        x, y = data
        first, second = self.inner.layers
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                inner_loss = tf.reduce_mean((self(x) - y) ** 2)
            gradient = inner.gradient(inner_loss, second.kernel.value)
            hidden = first(x) @ (second.kernel - 0.1 * gradient) + second.bias
            loss = tf.reduce_mean((hidden - y) ** 2)
        take_step(self, loss, outer)
        return feed_metrics(self, loss, y, hidden)


def check_nested_gradients():
    model = hpcrun.train.Model(LearnsToLearn())
    sgd(model, loss="mse", metrics=["mae"])
    first, last = model.fit(x, targets, **fit_arguments | {"epochs": 8}).history["loss"][::7]
    assert last < first
    assert_equal_weights(model)


class MixedPrecision(GuidesSteps, keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=predicted)
            scaled = self.optimizer.scale_loss(loss)
        take_step(self, scaled, tape)
        return feed_metrics(self, loss, y, predicted)


def check_mixed_precision():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        same(
            lambda: regression(MixedPrecision),
            lambda model: sgd(model, loss="mse", metrics=["mae"]),
            lambda model: model.fit(x, 0.1 * targets, **fit_arguments),  # or a rank's half alone would overflow float16
            4e-3,
            2e-2,
        )
    finally:
        keras.config.set_dtype_policy("float32")


failed = run_checks(__name__, sys.argv[1:])
print("RESULT", json.dumps(failed), flush=True)
sys.exit(len(failed))
