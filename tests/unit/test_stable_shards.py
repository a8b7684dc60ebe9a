"""The order of samples in which each rank gets nearly the same ones every epoch."""

import numpy as np
import pytest

from hpcrun.train.data.stable_shards import arrange_samples, owner


@pytest.mark.parametrize(("samples", "batch_size", "ranks"), [(10_000, 256, 8), (1003, 50, 3), (7, 2, 4), (5, 9, 1)])
def test_batches_have_the_same_samples(samples, batch_size, ranks):
    order = np.random.default_rng(0).permutation(samples)
    found = arrange_samples(order, batch_size, ranks)
    for at in range(0, samples, batch_size):
        assert sorted(found[at : at + batch_size]) == sorted(order[at : at + batch_size])


def test_each_rank_reads_few_samples_of_others():
    order = np.random.default_rng(0).permutation(50_000)
    arranged = arrange_samples(order, 256, 8)
    own = [owner(arranged[at : at + 256][rank::8], 8) == rank for at in range(0, 50_000, 256) for rank in range(8)]
    assert 0.92 < np.concatenate(own).mean() < 1
