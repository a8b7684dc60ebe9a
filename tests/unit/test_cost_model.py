"""The cost model of codecs, and the choice that follows from it."""

import numpy as np
import pytest

from hpcrun.train.gradients.codec_choice import Choice, check, choose
from hpcrun.train.gradients.cost_model import CodecCost, Link, fit_link, measure_codec
from hpcrun.train.gradients.half_precision import BFloat16AllReduce
from hpcrun.train.gradients.ternary import TernaryAllReduce

BYTES = 1e8  # of float32, between two ranks


@pytest.fixture
def costs():
    return {"bf16": CodecCost(100, BYTES / 2, 0.03), "powersgd": CodecCost(2, BYTES / 50, 0.07)}


@pytest.mark.parametrize(
    ("gigabits", "compute", "codec"),
    [
        (1, 0.1, "powersgd"),
        (10, 0.01, "bf16"),
        (10, 2.0, "none"),  # saves less than 5 % of a step
        (100, 0.01, "none"),  # the codec takes longer than the link
    ],
)
def test_the_fastest_codec_is_chosen(costs, gigabits, compute, codec):
    link = Link(1e-4, gigabits * 1e9 / 8)
    if codec == "bf16":
        costs["powersgd"] = costs["powersgd"]._replace(seconds=0.09)
    communication = CodecCost(50, BYTES, 0).predict(link)
    choice = choose(compute + communication, communication, costs, link)
    assert choice.codec == codec
    assert f"at {gigabits} Gbit/s; predicted with bf16: " in choice.reason
    assert ("saves less than 5 %" in choice.reason) == (codec == "none")


def test_a_codec_whose_work_may_not_pass_beside_sending_is_not_chosen(costs):
    link, communication = Link(1e-4, 1e9), 0.1
    costs["bf16"] = costs["bf16"]._replace(seconds=0.06, overlapped=0.05)  # 0.07 s, or 0.12 s one after the other
    assert choose(0.2, communication, {"bf16": costs["bf16"]}, link).codec == "none"
    assert choose(0.2, communication, costs, link).codec == "powersgd"  # takes longer than bf16 is predicted to
    costs["bf16"] = costs["bf16"]._replace(seconds=0.03, overlapped=0.02)
    assert choose(0.2, communication, {"bf16": costs["bf16"]}, link).codec == "bf16"


def test_a_link_is_fitted_to_a_measured_time():
    cost = CodecCost(50, BYTES, 0.01)
    link = fit_link(0.11, cost, 1e-3)
    assert link.bandwidth == pytest.approx(BYTES / 0.05)
    assert cost.predict(link) == pytest.approx(0.11)
    assert fit_link(0.01, cost, 1e-3).bandwidth == pytest.approx(BYTES / 0.001)  # a time shorter than the latencies


def test_encoding_beside_sending_costs_no_time_on_a_slow_link():
    cost = CodecCost(1, BYTES, 0.1, overlapped=0.08)
    assert cost.predict(Link(0, 1e8)) == pytest.approx(1.02)
    assert cost.predict(Link(0, 1e10)) == pytest.approx(0.1)
    assert cost.predict(Link(0, 1e10, 5e-10)) == pytest.approx(0.1 + 0.05)


@pytest.mark.parametrize("seconds", [0.1, 1.0])
def test_a_fitted_link_predicts_the_time_with_overlap(seconds):
    cost = CodecCost(50, BYTES, 0.05, overlapped=0.045)
    assert cost.predict(fit_link(seconds, cost, 1e-4)) == pytest.approx(seconds)


def test_ternary_messages_under_way_together_have_one_latency():
    gradients = [np.full(2**23, np.float32(1))]
    cost = measure_codec(TernaryAllReduce, gradients, 2)
    assert cost.collectives == 2  # of the scales, and of the codes
    assert 0.3 * cost.seconds < cost.overlapped < cost.seconds


def test_a_choice_that_does_not_pay_is_given_up():
    choice = Choice("bf16", "predicted")
    assert check(choice, 0.1, 0.09) == choice
    given_up = check(choice, 0.1, 0.11)
    assert given_up == ("none", "a step took 110 ms with bf16, and 100 ms with float32")


@pytest.mark.parametrize(("ranks", "megabytes"), [(2, 2), (32, 2), (512, 32)])
def test_half_precision_sends_large_shards_to_many_ranks(ranks, megabytes):
    gradients = [np.zeros(10 * 2**20, np.float32)]
    cost = measure_codec(BFloat16AllReduce, gradients, ranks, rounds=1)
    assert cost.collectives == 2 * -(-40 // megabytes)
    assert cost.sent_bytes == pytest.approx(2 * 2 * gradients[0].size * (ranks - 1) / ranks, rel=0.01)
