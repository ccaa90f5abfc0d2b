"""Placeholders of a step, and what its working directory stands for."""

from __future__ import annotations

from pathlib import Path

from pipelines.step import Step


def test_placeholders_become_directories_and_only_whole_arguments_are_placeholders() -> None:
    arguments = ("--trace", "{trace}", "--root-dir", "{work}", "--output", "{output}", "--recipe", "/odd/{trace}/{x}")
    step = Step("ppo", "policy", "components.ppo", arguments, inputs=("trace",), work="ppo")
    assert step.argv(Path("/run")) == [
        "--trace", "/run/trace", "--root-dir", "/run/ppo", "--output", "/run/policy", "--recipe", "/odd/{trace}/{x}",
    ]  # fmt: skip


def test_a_longer_budget_is_no_other_start() -> None:
    def step(minutes: str, seed: str) -> Step:
        arguments = ("--minutes", minutes, "--seed", seed)
        return Step("ppo", "policy", "components.ppo", arguments, extends=("--minutes",))

    assert step("1", "7").start_arguments() == step("60", "7").start_arguments() == ("--seed", "7")
    assert step("1", "7").start_arguments() != step("1", "8").start_arguments()
