"""Sharded TFRecord data sets of images, read and written without TensorFlow.

Record keys (``image/encoded``, ``image/class/label`` from 1, ...) and file names (``train-00000-of-01024``) are those
of TensorFlow's Inception scripts: hpcrun reads the data sets of these scripts, and programs that read those data sets
also read hpcrun's.
"""
