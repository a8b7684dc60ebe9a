"""Sharded TFRecord data sets of images, read and written without TensorFlow.

The records have the keys of Inception's scripts (``image/encoded``, ``image/class/label`` from 1, ...), and the files
their names (``train-00000-of-01024``), so that programs written for those read them, and hpcrun reads theirs.
"""
