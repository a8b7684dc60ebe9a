"""A Keras model that trains on all ranks in parallel."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.train.backends import reraise_original
from hpcrun.train.callbacks import callbacks_on_this_rank, wrap_user_callbacks
from hpcrun.train.checkpoint import open_checkpoint
from hpcrun.train.config_values import to_comparable
from hpcrun.train.data.arrays import are_arrays
from hpcrun.train.data.inputs import announce_local_batches, shard_input
from hpcrun.train.fit_callbacks import create_fit_callbacks, keras_verbose
from hpcrun.train.gradients.virtual_workers import is_distributed
from hpcrun.train.model_build import build, is_custom_step
from hpcrun.train.model_config import check_same_model
from hpcrun.train.model_wrapper import ModelWrapper
from hpcrun.train.normalization import disable_xla, synchronize_keras_layers
from hpcrun.train.pipeline.lazy import initialize
from hpcrun.train.prediction import predict_arrays, predict_batches
from hpcrun.train.ranks.agreement import require_agreement
from hpcrun.train.ranks.collectives import shared_seed
from hpcrun.train.ranks.replicas import divided_among_replicas, set_replica
from hpcrun.train.ranks.world import world
from hpcrun.train.staged_model import add_pipeline, prepare_optimizers
from hpcrun.train.state import broadcast_once
from hpcrun.train.steps import wrap_steps
from hpcrun.train.unsupported import check_compiled, check_is_model, check_layers, check_losses, check_metrics
from hpcrun.train.validation_data import shard_validation, split_validation
from hpcrun.train.worker_steps import choose_step

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    import keras

    from hpcrun.train.types import Data, Keras


class Model(ModelWrapper):
    """A Keras model whose `fit`, `evaluate` and `predict` divide the work among all ranks.

    All other attributes are those of the Keras model. The classes of the model and its optimizer do not change, so that
    Keras can load saved models without hpcrun. All ranks run the same script; `batch_size`, or the batches of a
    `tf.data.Dataset`, are global. The weights equal those of one process up to float rounding; docs/exactness.md lists
    exceptions.

    With `stages`, a rank has only some layers of the model (docs/pipeline.md): the ranks are divided into replicas of
    as many ranks as there are stages, and batches are divided among the replicas.

    Args:
        keras_model: A Keras model, compiled or not; with stages, a functional or sequential one.
        stages: Number of pipeline stages, or the name of the last layer of each stage but the last.
        micro_batches: Number of parts in which stages compute a batch (default: twice the number of stages).
        schedule: "1f1b" or "gpipe".
        recompute: Whether stages compute activations again in the backward pass instead of holding them.

    Raises:
        HpcrunError: `keras_model` is not a Keras model, or it or the number of ranks does not fit the stages.
    """

    def __init__(
        self,
        keras_model: keras.Model,
        stages: int | Sequence[str] = 1,
        micro_batches: int | None = None,
        *,
        schedule: str = "1f1b",
        recompute: bool = False,
    ) -> None:
        keras_model = getattr(keras_model, "keras_model", keras_model)  # unwrap an hpcrun.train.Model
        check_is_model(keras_model)
        super().__init__(keras_model)
        world()
        synchronize_keras_layers()
        if stages == 1 and stages is not True:
            initialize(keras_model.variables)
            wrap_steps(keras_model)
        else:
            add_pipeline(keras_model, stages, micro_batches, schedule=schedule, recompute=recompute)
        set_replica(self._replica)
        if keras_model.compiled:
            self._set_up_ranks()

    def compile(self, *args: Keras, **kwargs: Keras) -> None:
        """Compile the model as `keras.Model.compile` does, and let the optimizer average gradients over the ranks.

        With `jit_compile=True` on TensorFlow, XLA compiles the forward and backward pass.

        Raises:
            HpcrunError: With several ranks, a loss has `reduction="none"`.
        """
        disable_xla(self.keras_model)
        self.keras_model.compile(*args, **kwargs)
        self._set_up_ranks()

    @divided_among_replicas
    def fit(  # noqa: PLR0917  (Keras's signature)
        self,
        x: Data = None,
        y: Data = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: str | int = "auto",
        callbacks: Keras = None,
        validation_split: float = 0.0,
        validation_data: Data = None,
        shuffle: bool = True,
        class_weight: Mapping[int, float] | None = None,
        sample_weight: Data = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        validation_batch_size: int | None = None,
        validation_freq: int | list[int] = 1,
        *,
        distribute: bool = True,
        distribute_validation: bool = True,
        checkpoint_dir: str | os.PathLike[str] | None = None,
    ) -> keras.callbacks.History:
        """Train as `keras.Model.fit` does. Collective; equal arguments on all ranks.

        Args:
            x: Arrays of (samples, ...), or an iterable of batches of the global batch size: a `tf.data.Dataset`, a
                `keras.utils.PyDataset`, a PyTorch DataLoader, a generator.
            y: Targets, with arrays.
            batch_size: The global batch size, with arrays (default: 32).
            epochs: As in Keras.
            verbose: "auto" prints one line per epoch, suitable for log files; 1 and 2 as in Keras. Only rank 0 prints.
            callbacks: As in Keras; callbacks that write files run on rank 0.
            validation_split: As in Keras, with arrays.
            validation_data: (x, y) or (x, y, sample_weight), or an iterable of batches.
            shuffle: Whether to shuffle arrays every epoch, in the same order on all ranks.
            class_weight: As in Keras.
            sample_weight: Weight of each sample, (samples,), with arrays.
            initial_epoch: As in Keras.
            steps_per_epoch: As in Keras.
            validation_steps: As in Keras.
            validation_batch_size: The global batch size of validation, with arrays (default: `batch_size`).
            validation_freq: As in Keras.
            distribute: False: each rank trains on its own batches, and all ranks have the same weight.
            distribute_validation: False: every rank validates on all validation data.
            checkpoint_dir: Folder of checkpoints: a `fit` that SIGTERM or SIGUSR2 stopped continues from the last one.
                Default: ``$HPCRUN_RUN_DIR/checkpoints``; no checkpoints if that variable is unset.

        Returns:
            The history as in Keras, equal on all ranks.

        Raises:
            HpcrunError: The data cannot be sharded, or the ranks' arguments differ.
        """
        check_compiled(self.keras_model)
        if validation_split and validation_data is None:
            (x, y, sample_weight), validation_data = split_validation((x, y, sample_weight), validation_split)
        announce_local_batches(distribute, "distribute", "trains on")
        user_callbacks = wrap_user_callbacks(callbacks)
        seed, completed_epochs, completed_batches = shared_seed(), 0, 0
        checkpoint = open_checkpoint(checkpoint_dir, seed, [callback.callback for callback in user_callbacks])
        if checkpoint and checkpoint.is_resumed():
            completed_epochs = checkpoint.position.epoch - initial_epoch
            seed, initial_epoch = checkpoint.position.seed, checkpoint.position.epoch
            completed_batches = checkpoint.position.batch
        training = shard_input(
            x,
            y,
            sample_weight,
            batch_size=batch_size,
            order=seed if shuffle else None,
            seed=seed,
            class_weight=class_weight,
            distribute=distribute,
            first_epoch=completed_epochs if steps_per_epoch is None else 0,
            drop_batches=completed_epochs * (steps_per_epoch or 0),
            skip_batches=completed_batches,
            scalars=is_custom_step(self.keras_model, "train_step"),
        )
        require_agreement(
            {
                "number of epochs": (initial_epoch, epochs),
                "number of batches in an epoch": (training.steps, steps_per_epoch),
                "batch size": batch_size,
                "validation": (validation_data is None, str(validation_freq), validation_steps),
                **({"shuffle": bool(shuffle), "class_weight": to_comparable(class_weight)} if distribute else {}),
            },
            "call fit with the same arguments and data sets of the same size on all ranks",
        )
        model, training_state = self.keras_model, self.keras_model.training_state
        check_same_model(model)
        training_state.reducers = prepare_optimizers(model)  # an optimizer may be set after compile
        build(model, training, "train_step")
        check_metrics(model)
        training_state.checkpoint = checkpoint
        training_state.open_ended = training.steps is None and steps_per_epoch is None
        if checkpoint:
            checkpoint.set_model(model)
            if history := checkpoint.finished_history(epochs):
                return history
        if validation_data is not None:
            validation_size = batch_size if validation_batch_size is None else validation_batch_size
            validation_data = shard_validation(model, validation_data, validation_size, distribute_validation)
        steps = steps_per_epoch or training.steps
        all_callbacks = create_fit_callbacks(
            model, user_callbacks, checkpoint, verbose=verbose, epochs=epochs, steps=steps
        )
        with reraise_original(), checkpoint.handle_signals() if checkpoint else nullcontext():
            return model.fit_shards(
                training.x,
                epochs=epochs,
                initial_epoch=initial_epoch,
                steps_per_epoch=steps_per_epoch,
                shuffle=False,
                verbose=keras_verbose(verbose),
                callbacks=all_callbacks,
                validation_data=validation_data,
                validation_steps=validation_steps,
                validation_freq=validation_freq,
            )

    @divided_among_replicas
    def evaluate(  # noqa: PLR0917  (Keras's signature)
        self,
        x: Data = None,
        y: Data = None,
        batch_size: int | None = None,
        verbose: str | int = "auto",
        sample_weight: Data = None,
        steps: int | None = None,
        callbacks: Keras = None,
        return_dict: bool = False,
        *,
        distribute: bool = True,
    ) -> Keras:
        """Evaluate as `keras.Model.evaluate` does, each rank on its shard. Collective; all ranks get the same result.

        Args:
            x: Arrays of (samples, ...), or an iterable of batches, as for `fit`.
            y: Targets, with arrays.
            batch_size: The global batch size, with arrays (default: 32).
            verbose: 1 and 2 as in Keras, on rank 0; "auto" prints nothing.
            sample_weight: Weight of each sample, (samples,), with arrays.
            steps: As in Keras.
            callbacks: As in Keras.
            return_dict: As in Keras.
            distribute: False: every rank evaluates all data.

        Returns:
            The loss, or a list of loss and metrics; a dict if `return_dict=True`.

        Raises:
            HpcrunError: The data cannot be sharded, or differ between ranks.
        """
        check_compiled(self.keras_model)
        announce_local_batches(distribute, "distribute", "evaluates")
        scalars = is_custom_step(self.keras_model, "test_step")
        sharded_input = shard_input(x, y, sample_weight, batch_size=batch_size, distribute=distribute, scalars=scalars)
        require_agreement(
            {"number of batches": (sharded_input.steps, steps)}, "give evaluate the same data on all ranks"
        )
        build(self.keras_model, sharded_input, "test_step")
        broadcast_once(self.keras_model)
        check_metrics(self.keras_model)
        with reraise_original():
            return self.keras_model.evaluate_shards(
                sharded_input.x,
                steps=steps,
                verbose=keras_verbose(verbose),
                callbacks=callbacks_on_this_rank(wrap_user_callbacks(callbacks)),
                return_dict=return_dict,
            )

    @divided_among_replicas
    def predict(
        self,
        x: Data,
        batch_size: int | None = None,
        verbose: str | int = "auto",
        steps: int | None = None,
        callbacks: Keras = None,
    ) -> Data:
        """Predict as `keras.Model.predict` does. Collective; all ranks get all predictions, in sample order.

        Args:
            x: Arrays of (samples, ...), or an iterable of batches, as for `fit`.
            batch_size: Number of samples per step on this rank, with arrays (default: 32).
            verbose: 1 and 2 as in Keras, on rank 0; "auto" prints nothing.
            steps: Number of global batches to predict, as in Keras; not with arrays.
            callbacks: As in Keras; hooks get the outputs for this rank's shard.

        Returns:
            Arrays of (samples, ...), structured as the model's outputs.

        Raises:
            HpcrunError: `x` is an `hpcrun.train.dataset`, which contains only this rank's samples; or `x` consists of
                arrays and `steps` is given.
        """
        callbacks = callbacks_on_this_rank(wrap_user_callbacks(callbacks))
        kwargs = {"verbose": keras_verbose(verbose), "callbacks": callbacks}
        if world().size == 1:
            return self.keras_model.predict(x, batch_size=batch_size, steps=steps, **kwargs)
        if self.keras_model.built:
            broadcast_once(self.keras_model)
        if are_arrays(x):
            if steps is not None:
                raise HpcrunError(f"predict got arrays and steps={steps}", hint="leave steps out, or give x[:n]")
            return predict_arrays(self.keras_model, x, batch_size=batch_size, **kwargs)
        return predict_batches(self.keras_model, x, steps=steps, **kwargs)

    def _set_up_ranks(self) -> None:
        model = self.keras_model
        if is_distributed():
            check_losses(model)
            check_layers(model)
            model.training_state.reducers = prepare_optimizers(model)
            if not model.training_state.pipeline:
                choose_step(model)
