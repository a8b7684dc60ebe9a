"""Precision @ 1 and recall @ 5 of a trained model over the whole validation set, as in Inception's imagenet_eval.py."""

from __future__ import annotations

import os
import time
from dataclasses import asdict

import hpcrun.train

args = hpcrun.train.options(__file__)
hpcrun.train.init()  # starts MPI, and TensorFlow on this rank's cores and GPU, before the import of Keras

from hpcrun.train import images  # noqa: E402
from hpcrun.train.evaluation import Evaluator, make_batches, record_evaluation, require_classes  # noqa: E402
from hpcrun.train.follow_run import last_evaluated_epoch, list_models  # noqa: E402

data_dir = args.data_dir or os.environ.get("HPCRUN_DATA_IMAGENET")
if not data_dir:
    raise hpcrun.train.HpcrunError("evaluate has no images", hint="--data-dir FOLDER, or set $HPCRUN_DATA_IMAGENET")
validation = images.read_split(data_dir, args.split, limit=args.val_num_samples, skip_bad=args.skip_bad)

result, evaluator = {}, None
last_epoch = last_evaluated_epoch() if args.follow else 0  # the last epoch before this job was requeued
for saved in list_models(args.run, follow=args.follow, best=args.best, after_epoch=last_epoch):
    start_time = time.perf_counter()
    model = hpcrun.train.load_model(saved.file)  # contains moving averages of the weights if the training kept them
    require_classes(model, saved, validation.names)
    if evaluator is None:
        evaluator = Evaluator(model)
    else:
        evaluator.model.set_weights(model.get_weights())
    evaluation = evaluator.evaluate(make_batches(validation, args.batch_size, model))
    record_evaluation(evaluation, saved, time.perf_counter() - start_time)
    result = {**asdict(evaluation), **({"epoch": saved.epoch} if saved.epoch else {}), "model": str(args.run)}

if result:
    hpcrun.train.write_result(**result)
