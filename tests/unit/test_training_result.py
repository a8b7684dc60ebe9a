"""Values of ``result.json`` that cover all starts of a run."""

import pytest

from hpcrun.train import result


@pytest.mark.parametrize(("text", "expected"), [
    (None, [7.0]),
    ("", [7.0]),
    ('{"epoch": 1, "images_per_second": 140.0}\n{"epoch": 2, "images_per_second": 30.0}\n', [140.0, 30.0]),
    ('{"mine": 1}\n[2]\n{"epoch": 1, "images_per_second": 0.0}\n{"images_per_second": 5}\n{"half', [5.0]),
])  # fmt: skip
def test_rates_of_epochs_before_a_restart_count(tmp_path, monkeypatch, text, expected):
    monkeypatch.setattr(result, "epoch_rates", [7.0])
    if text is not None:
        (tmp_path / "metrics.jsonl").write_text(text)
    assert result.list_rates(tmp_path) == expected
    assert result.list_rates(None) == [7.0]
