"""The curve of a training: as it is written, and of policies that have none."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.core.formats.training_curve import PERCENTILES, read_curve, write_curve
from components.platform.errors import UserError

ROWS = [
    {"iteration": 0, "minutes": 0.0, "validation_reduction_percent": -0.5},
    *(
        {
            "iteration": i,
            "minutes": 2.5 * i,
            "reward_mean": i / 100,
            **{f"reward_percentile_{p}": p for p in PERCENTILES},
        }
        for i in (1, 2)
    ),
    {"iteration": 3, "minutes": 7.5, "validation_reduction_percent": 1.5},
]


@pytest.mark.parametrize("below", ["", "tensorboard", "ppo/tensorboard"])
def test_written_curve_is_read(tmp_path: Path, below: str) -> None:
    (tmp_path / below).mkdir(parents=True, exist_ok=True)
    write_curve(tmp_path / below / "training.csv", ROWS)
    curve = read_curve(tmp_path)
    assert curve is not None
    assert (curve.mean.minutes.tolist(), curve.mean.values.tolist()) == ([2.5, 5.0], [0.01, 0.02])
    assert (curve.low.values.tolist(), curve.high.values.tolist()) == ([25, 25], [75, 75])
    assert (curve.validation.minutes.tolist(), curve.validation.values.tolist()) == ([0, 7.5], [-0.005, 0.015])


def test_no_curve_without_rewards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert read_curve(tmp_path) is None
    write_curve(tmp_path / "training.csv", [])
    assert read_curve(tmp_path) is None
    assert not capsys.readouterr().out


def test_policy_of_an_earlier_version_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tensorboard").mkdir()
    (tmp_path / "tensorboard" / "events.out.tfevents.1").write_bytes(b"")
    assert read_curve(tmp_path) is None
    message = f"no training curve in the report: {tmp_path} has TensorBoard events, but no training.csv\n"
    assert capsys.readouterr().out == message


def test_error_names_a_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no training"):
        read_curve(tmp_path / "nothing")


@pytest.mark.parametrize(
    "text", ["reward_mean\n1\n", "iteration,minutes,reward_mean,validation_reduction_percent\n1,x,1,\n", "a\n1,2\n"]
)
def test_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "training.csv").write_text(text)
    with pytest.raises(UserError, match=r"training\.csv"):
        read_curve(tmp_path)
