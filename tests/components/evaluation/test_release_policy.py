"""Tests of the choice of the policy that a release clang embeds, and of measurements of other than the trained one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from components.core.formats.policy import PolicyInfo, write_policy_info
from components.core.formats.toolchain import FILE_NAME, Toolchain
from components.core.objectives.size import SIZE
from components.core.policy.pretrained import pretrained_policy
from components.evaluation.config import EvaluationConfig
from components.evaluation.measurements import BASELINE, Measurements
from components.evaluation.metrics import refuse_without_gain_over_start, summarize
from components.evaluation.metrics_types import Inputs, VariantDescription, encode_json
from components.evaluation.release_policy import (
    choose_release_policy,
    find_role,
    publish_release_policy,
    swap_descriptions,
    swap_roles,
)
from components.evaluation.report.terminal_report import METRICS
from components.platform.errors import UserError
from components.platform.storage import digest, publish, verify
from components.platform.storage.manifest import MANIFEST

X = Path("/x")
CLANG = Path("/usr/lib/llvm-19/bin/clang")
SIZES = [1000, 3000, 400, 600]
# The same change of each module, so that it is shown for other modules.
SMALLER, SLIGHTLY, EQUAL, LARGER = ([round(size * factor) for size in SIZES] for factor in (0.95, 0.998, 1.0, 1.02))
NOISE = [700, 3100, 440, 600]
"""3.2% smaller in sum, but only because of one module of four."""


@pytest.mark.parametrize(
    ("start", "trained", "warmstart", "reference", "release_if", "expected"),
    [
        ("ppo", SMALLER, EQUAL, None, "better", "trained"),
        ("ppo", SMALLER, EQUAL, None, "always", "trained"),
        # Not better than the trained policy that it started from.
        ("ppo", SLIGHTLY, SMALLER, None, "better", "start"),
        ("ppo", SLIGHTLY, SMALLER, None, "always", "start"),
        ("ppo", SMALLER, SMALLER, None, "better", "start"),
        ("ppo", LARGER, SLIGHTLY, None, "better", "none"),  # the limit holds for the start, too
        ("ppo", LARGER, SLIGHTLY, None, "always", "start"),
        # Better than the trained policy that it started from, but less than required.
        ("ppo", SLIGHTLY, EQUAL, None, "better", "none"),
        ("ppo", SLIGHTLY, EQUAL, None, "always", "trained"),
        # A policy that imitates the heuristic is no alternative.
        ("warmstart", SLIGHTLY, SMALLER, None, "better", "none"),
        ("warmstart", SLIGHTLY, EQUAL, SMALLER, "better", "pretrained"),
        ("warmstart", SLIGHTLY, EQUAL, SMALLER, "always", "trained"),
        ("warmstart", LARGER, EQUAL, SMALLER, "always", "pretrained"),
        ("warmstart", LARGER, EQUAL, NOISE, "better", "none"),
        ("warmstart", LARGER, EQUAL, LARGER, "better", "none"),
        ("warmstart", LARGER, EQUAL, LARGER, "always", "trained"),
        ("warmstart", LARGER, EQUAL, None, "always", "trained"),
        # A pretrained policy never takes the place of a start that somebody chose.
        ("ppo", LARGER, EQUAL, SMALLER, "better", "none"),
        ("ppo", LARGER, EQUAL, SMALLER, "always", "start"),
    ],
)
def test_release_policy(
    make_measurements: Callable[..., Measurements],
    start: str,
    trained: list[int],
    warmstart: list[int],
    reference: list[int] | None,
    release_if: str,
    expected: str,
) -> None:
    others = {} if reference is None else {"reference": reference}
    measured = make_measurements(baseline=SIZES, policy=trained, warmstart=warmstart, **others)
    config = EvaluationConfig(X, X, X, X, release_if=release_if)
    metrics = summarize(measured, config.required_percent)
    metrics.inputs = Inputs(warmstart_trained_by=start, reference="pretrained" if reference else None)
    no_gain = refuse_without_gain_over_start(metrics, start)
    assert choose_release_policy(metrics, measured, config, no_gain) == expected


@pytest.mark.parametrize(("release_if", "expected"), [("better", "none"), ("always", "trained")])
@pytest.mark.parametrize("trained", [1000, 940])
def test_no_policy_is_embedded_on_the_evidence_of_one_module(trained: int, release_if: str, expected: str) -> None:
    """A project of seven sources has one held-out module, which has no interval."""
    values = {"baseline": 1000, "policy": trained, "warmstart": 1000, "reference": 950}
    sizes = {name: np.array([value]) for name, value in values.items()}
    measured = Measurements(SIZE, ("app/a.o",), ("app",), np.array([False]), sizes, languages=("c++",))
    config = EvaluationConfig(X, X, X, X, release_if=release_if)
    metrics = summarize(measured, config.required_percent)
    metrics.inputs = Inputs(warmstart_trained_by="warmstart", reference="pretrained")
    assert metrics.verdict == ("not better" if trained == 1000 else "not shown")
    assert choose_release_policy(metrics, measured, config, False) == expected
    # Where its report will link the user's own programs, these decide.
    chosen = choose_release_policy(metrics, measured, config, False, judges_own_build=True)
    assert chosen == ("pretrained" if trained == 1000 else "trained")


def test_policy_of_compare_with_is_not_embedded(make_measurements: Callable[..., Measurements]) -> None:
    measured = make_measurements(baseline=SIZES, policy=LARGER, reference=SMALLER)
    config = EvaluationConfig(X, X, X, X)
    metrics = summarize(measured, config.required_percent)
    metrics.inputs = Inputs(warmstart_trained_by="warmstart", reference="/somewhere/policy")
    assert choose_release_policy(metrics, measured, config, False) == "none"


@pytest.mark.parametrize(("role", "others"), [("start", {"reference"}), ("pretrained", {"reference", "warmstart"})])
def test_measurements_in_place_of_the_trained_policy(
    make_measurements: Callable[..., Measurements], role: str, others: set[str]
) -> None:
    measured = make_measurements(reference=SMALLER)
    swapped = swap_roles(measured, role)  # type: ignore[arg-type]
    replaced = "warmstart" if role == "start" else "reference"
    assert swapped.values["policy"].tolist() == measured.values[replaced].tolist()
    assert swapped.values["reference"].tolist() == measured.values["policy"].tolist()
    assert set(swapped.values) == {BASELINE, "policy", "inline-threshold=5", "inline-threshold=15", *others}
    assert set(swapped.sections) == {BASELINE}, "those of the policy were of the trained one"
    assert swap_roles(measured, "trained") is measured
    names = ["baseline", "warmstart", "reference", "policy", "inline-threshold=5"]
    if role == "start":
        names.remove("reference")  # it is not compiled if training started from it
    described = swap_descriptions([VariantDescription(name, "/clang", f"of {name}") for name in names], role)  # type: ignore[arg-type]
    assert [(variant.name, variant.flags) for variant in described] == [
        ("baseline", "of baseline"),
        *([("warmstart", "of warmstart")] if role == "pretrained" else []),
        ("reference", "of policy"),
        ("policy", f"of {replaced}"),
        ("inline-threshold=5", "of inline-threshold=5"),
    ]


def artifact(path: Path, trained_by: str) -> Path:
    with publish(path, "policy") as directory:
        write_policy_info(directory, PolicyInfo("inlining", (), 2, trained_by))
        (directory / "run").write_text("#!/bin/sh\n")
        (directory / "run").chmod(0o755)
        (directory / "link").symlink_to("policy.json")
    return path


def test_chosen_policy_is_copied_unchanged(tmp_path: Path, measured: Measurements) -> None:
    trained, start = artifact(tmp_path / "policy", "ppo"), artifact(tmp_path / "start", "warmstart")
    pretrained = pretrained_policy("inlining", clang=CLANG)
    toolchain = write_training_toolchain(tmp_path / "training")
    evaluation = tmp_path / "evaluation"
    evaluation.mkdir()
    metrics = summarize(measured, 0.5)
    metrics.inputs = Inputs(
        policy_digest=digest(trained),
        warmstart_digest=digest(start),
        reference="pretrained",
        reference_digest=digest(pretrained),
    )

    def select(role: str) -> Path:
        metrics.release_policy = role  # type: ignore[assignment]
        (evaluation / METRICS).write_text(encode_json(metrics))
        output = tmp_path / role
        assert publish_release_policy(evaluation, trained, start, toolchain, output) == role
        verify(output)
        return output

    for role, policy in (("trained", trained), ("start", start), ("pretrained", pretrained)):
        output = select(role)
        assert (output / MANIFEST).read_bytes() == (policy / MANIFEST).read_bytes()
        assert find_role(digest(output), metrics.inputs) == role
    with pytest.raises(UserError, match="not better"):
        select("none")
    metrics.verdict, metrics.refused_because = "not shown", "other modules of these projects may gain nothing"
    with pytest.raises(UserError, match="not shown"):
        select("none")
    metrics.inputs.warmstart_digest = digest(trained)
    with pytest.raises(UserError, match="another policy"):
        select("start")
    assert find_role("unknown", metrics.inputs) is None
    metrics.inputs.reference = "/somewhere/policy"
    assert find_role(digest(pretrained), metrics.inputs) is None, "a policy of --compare-with is not embedded"


def write_training_toolchain(directory: Path) -> Path:
    """Write a training toolchain whose clang is the installed one."""
    with publish(directory, "toolchain") as partial:
        (partial / "bin").mkdir()
        (partial / "bin" / "clang").symlink_to(CLANG)
        described = Toolchain(partial, "training", "19.1.7", "x86_64-pc-linux-gnu", {}, {}).to_json()
        (partial / FILE_NAME).write_text(json.dumps(described))
    return directory
