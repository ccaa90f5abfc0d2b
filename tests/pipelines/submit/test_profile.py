"""`mlgo pipeline profile`: what steps used, by the logs of a run, and overrides that `submit` takes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.platform.errors import UserError
from components.platform.launcher.step_cost import StepCost
from pipelines.spec import COMPILED, load_spec
from pipelines.submit.overrides import override_for_kfp
from pipelines.submit.overrides_document import read_overrides
from pipelines.submit.profile import Profile, overrides_text, profile_of_directory
from tests.pipelines.submit.test_runs import Start, mlgo, start

__all__ = ["start"]  # a fixture


def overrides_of(costs: dict[str, StepCost], margin_percent: int = 50, limits_only: bool = False) -> dict[str, Any]:
    return dict(yaml.safe_load(overrides_text(Profile(costs), margin_percent, limits_only)))


def test_steps_of_a_run_on_kfp_are_listed_with_their_sum(host: str, start: Start) -> None:
    run = start("profiled", looks=5)
    lines = mlgo("profile", run, "--host", host).splitlines()
    assert lines[0].startswith("STEP") and "MEMORY AT MOST" in lines[0]
    assert lines[1].split() == "corpus 60.0 126.0 2.1 of 8 1843.0 MB 120.5 MB 3.2 MB".split()
    assert [line.split()[0] for line in lines[1:5]] == ["corpus", "trace", "warmstart", "ppo"]
    assert lines[5].split() == "all 251.0 527.1 0.15 core hours 1843.0 MB 482.0 MB 12.8 MB".split()
    assert sorted(lines[6:]) == [
        "nothing is known of evaluation: it still runs",
        "nothing is known of toolchain-training: it reused the result of another run",
        "nothing is known of vocab: its log is gone, or has no figures",
    ]


def test_overrides_of_a_run_are_taken_by_the_next(host: str, start: Start, images: Path, tmp_path: Path) -> None:
    run = start("profiled", looks=8)
    file = tmp_path / "used.yaml"
    printed = mlgo("profile", run, "--host", host, "--overrides", file, "--margin-percent", 10)
    assert f"{file}: what the steps of {run} used, and 10%" in printed
    assert file.read_text().startswith(f"# mlgo pipeline profile: what the steps of {run} used, and 10%\n")
    spec, _pods = override_for_kfp(load_spec(COMPILED), read_overrides(file))
    resources = spec["deploymentSpec"]["executors"]["exec-ppo"]["container"]["resources"]
    assert (resources["resourceCpuRequest"], resources["resourceCpuLimit"]) == ("2400m", "8")
    assert resources["resourceMemoryRequest"] == resources["resourceMemoryLimit"] == "2100M"
    mlgo("submit", "--host", host, "--images", images, "--param", "recipe=demo", "--overrides", file)
    before = file.read_text()
    with pytest.raises(UserError, match=r"used\.yaml exists"):
        mlgo("profile", run, "--host", host, "--overrides", file)
    with pytest.raises(UserError, match="there is no directory"):
        mlgo("profile", run, "--host", host, "--overrides", tmp_path / "none" / "used.yaml")
    assert file.read_text() == before


def test_failed_step_is_shown_and_gets_no_overrides(host: str, start: Start, tmp_path: Path) -> None:
    run = start("profiled", looks=6, preset="tiny")
    printed = mlgo("profile", run, "--host", host, "--overrides", tmp_path / "used.yaml")
    assert "ppo failed: it may need more" in printed
    assert set(read_overrides(tmp_path / "used.yaml")) == {"corpus", "trace", "warmstart"}


def test_run_without_figures_is_reported(host: str, start: Start, tmp_path: Path) -> None:
    run = start(looks=3)
    printed = mlgo("profile", run, "--host", host)
    assert printed.startswith("no step has ended whose figures are known") and "its log is gone" in printed
    with pytest.raises(UserError, match="no step of the run has succeeded"):
        mlgo("profile", run, "--host", host, "--overrides", tmp_path / "used.yaml")
    assert not (tmp_path / "used.yaml").exists()


def test_waiting_run_prints_the_verdict_without_costs(host: str, start: Start) -> None:
    printed = mlgo("watch", start("profiled", looks=5), "--host", host)
    assert "verdict on the modules: better" in printed and "cost: " not in printed


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        # Less than a request's unit, and no processor at all.
        (
            StepCost(0.0, 4, 0.0, 0),
            {"cpu": {"request": "100m", "limit": 4}, "memory": {"request": "500M", "limit": "500M"}},
        ),
        # The request is not above the limit.
        (
            StepCost(10.0, 2, 19.0, 2 * 10**9),
            {"cpu": {"request": "2000m", "limit": 2}, "memory": {"request": "3000M", "limit": "3000M"}},
        ),
        (
            StepCost(10.0, 8, 21.0, 1_010_000_000),
            {"cpu": {"request": "3200m", "limit": 8}, "memory": {"request": "1600M", "limit": "1600M"}},
        ),
    ],
)
def test_requests_have_a_margin_and_limits_of_processors_stay(cost: StepCost, expected: dict[str, Any]) -> None:
    assert overrides_of({"ppo": cost}) == {"ppo": expected}


def test_limits_of_vertex_are_what_would_be_requested() -> None:
    assert overrides_of({"ppo": StepCost(10.0, 8, 21.0, 10**9)}, 0, limits_only=True) == {
        "ppo": {"cpu": {"limit": 3}, "memory": {"limit": "1000M"}}
    }


def write_log(run: Path, step: str, text: str, seconds: int, recorded: int | None) -> None:
    """Write the log of a step, and the record of its success, with these times."""
    for path, time in ((run / "logs" / f"{step}.log", seconds), (run / ".steps" / f"{step}.json", recorded)):
        if time is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            os.utime(path, (time, time))


def test_run_on_this_machine_is_read_from_its_logs(tmp_path: Path) -> None:
    cost, later = StepCost(10.0, 2, 15.0, 10**9), StepCost(11.0, 2, 16.0, 10**9)
    write_log(tmp_path, "vocab", f"$ command\n{later.line()}\n", 20, 21)
    write_log(tmp_path, "corpus", f"{later.line()}\n{cost.line()}\n", 10, 11)
    write_log(tmp_path, "ppo", f"{cost.line()}\nerror: broken\n", 30, 15)
    write_log(tmp_path, "trace", f"{cost.line()}\n", 40, None)
    write_log(tmp_path, "old", "$ command\n", 50, 51)
    write_log(tmp_path, "finish", "sent\n", 60, None)
    profile = profile_of_directory(tmp_path)
    assert list(profile.costs.items()) == [("corpus", cost), ("vocab", later), ("ppo", cost), ("trace", cost)]
    assert profile.failed == {"ppo", "trace"} and set(profile.unknown) == {"old"}
    assert "all" in mlgo("profile", tmp_path)


@pytest.mark.parametrize("path", ["nowhere", "", "."])
def test_other_directory_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(UserError, match="is no directory of a run") as refused:
        mlgo("profile", tmp_path / path)
    assert "--host" in refused.value.remedy
