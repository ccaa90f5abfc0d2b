from __future__ import annotations

from pathlib import Path

import pytest

from components.core.compiler.advisor import Advisor, shared_files
from components.platform.errors import UserError

DEVELOPMENT = ["-mllvm", "-enable-ml-inliner=development"]
POLICY = ["-mllvm", "-ml-inliner-model-under-training=/a/policy"]
SAMPLES = ["-mllvm", "-mlgo-samples=3", "-mllvm", "-mlgo-sample-prefix=s/m"]
LOG = ["-mllvm", "-training-log=s/m.log"]


@pytest.mark.parametrize(
    ("advisor", "flags"),
    [
        (Advisor("default"), []),
        (Advisor("release"), ["-mllvm", "-enable-ml-inliner=release"]),
        (Advisor("log"), DEVELOPMENT + LOG),
        (Advisor("policy", Path("/a/policy")), DEVELOPMENT + POLICY),
        (Advisor("policy", Path("/a/policy"), log=True), DEVELOPMENT + POLICY + LOG),
        (Advisor("policy", Path("/a/policy"), seed=0), [*DEVELOPMENT, *POLICY, "-mllvm", "-mlgo-seed=0"]),
        (
            Advisor("policy", Path("/a/policy"), seed=5, samples=3, log=True),
            [*DEVELOPMENT, *POLICY, "-mllvm", "-mlgo-seed=5", *SAMPLES],
        ),
        (Advisor("heuristic", samples=3), [*DEVELOPMENT, *SAMPLES, "-mllvm", "-mlgo-sample-logs=false"]),
    ],
)
def test_flags_of_each_mode(advisor: Advisor, flags: list[str]) -> None:
    assert advisor.flags("inlining", Path("s/m.log"), Path("s/m")) == flags


def test_regalloc_flags_of_each_mode() -> None:
    development = ["-mllvm", "-regalloc-enable-advisor=development"]
    log, release = ["-mllvm", "-regalloc-training-log=l"], ["-mllvm", "-regalloc-enable-advisor=release"]
    assert Advisor("log").flags("regalloc", Path("l"), None) == development + log
    assert Advisor("release").flags("regalloc", None, None) == release
    policy = Advisor("policy", Path("/a/policy"), log=True).flags("regalloc", Path("l"), None)
    assert policy == [*development, "-mllvm", "-regalloc-model=/a/policy", *log]


@pytest.mark.parametrize(
    "arguments",
    [
        {"mode": "policy"},
        {"mode": "log", "policy": Path("p")},
        {"mode": "default", "seed": 1},
        {"mode": "default", "log": True},
        {"mode": "release", "samples": 2},
        {"mode": "default", "samples": 2},
        {"mode": "heuristic"},
        {"mode": "heuristic", "samples": 2, "log": True},
    ],
)
def test_contradictory_arguments_are_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        Advisor(**arguments)  # type: ignore[arg-type]


def test_unknown_problem_is_refused() -> None:
    with pytest.raises(UserError, match="unrolling"):
        Advisor("log").flags("unrolling", Path("l"), None)


def test_relative_policy_path_becomes_absolute() -> None:
    flags = Advisor("policy", Path("policy")).flags("inlining", None, None)
    assert flags[-1] == f"-ml-inliner-model-under-training={Path.cwd() / 'policy'}"


def test_workers_get_the_tflite_form_where_there_is_one(tmp_path: Path) -> None:
    assert shared_files(tmp_path) == ("policy.so", "output_spec.json")
    (tmp_path / "model.tflite").touch()
    assert shared_files(tmp_path) == ("policy.so", "output_spec.json", "model.tflite")
