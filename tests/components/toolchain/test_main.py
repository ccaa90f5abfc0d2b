"""Command line of the toolchain step: arguments that are refused before anything is built."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from components.core.formats.policy import PRETRAINED_NAMES, PolicyInfo, load_policy_info, write_policy_info
from components.core.policy.pretrained import pretrained_problems
from components.platform.storage import publish
from components.toolchain.__main__ import main
from components.toolchain.config import SdkConfig, ToolchainConfig
from tests.support.commands import run_command


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run_command("components.toolchain", *arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mode", "release"], "--policy DIR"),
        (["--mode", "training", "--policy", "./policy"], "omit --policy"),
        (["--mode", "release", "--policy", "./nowhere"], "no policy at nowhere"),
        (["--mode", "release", "--policy", "pretained"], "or one of pretrained, pretrained-llvm, pretrained-thumb"),
        (["--mode", "training", "--sdk", "nowhere"], "nowhere is no complete SDK of LLVM 19"),
        (["--mode", "sdk", "--llvm-major", "21"], "pass --llvm-major 22"),
        (["--mode", "sdk", "--llvm-major", "22"], "pass --llvm-source git:llvmorg-22"),
        (["--mode", "sdk", "--extra-policy", "."], "--extra-policy is an option of --mode release"),
        (["--mode", "sdk", "--embed", "tf-aot"], "--embed is an option of --mode release"),
        (["--mode", "sdk", "--strategy", "plugin"], "--strategy is an option of --mode training and release"),
        (["--mode", "sdk", "--sdk", "."], "omit --sdk, or pass --mode training"),
        (["--mode", "training", "--projects", "polly"], "--projects is an option of --mode sdk"),
        (["--mode", "training", "--definitions", "A=B"], "--definitions is an option of --mode sdk"),
        (["--mode", "release", "--ir2vec-vocab", "random"], "--ir2vec-vocab is an option of --mode training"),
        (["--mode", "release", "--clang", "clang-19"], "--clang is an option of --mode training"),
        (
            ["--mode", "training", "--problem", "regalloc"],
            "pass --clang PATH, and --problem, together with --strategy external",
        ),
        (["--mode", "training", "--llvm-source", "nowhere"], "nowhere is not an LLVM source tree"),
    ],
)
def test_invalid_arguments_are_refused_with_a_remedy(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = run(*arguments, "--cache", tmp_path / "cache", "--output", tmp_path / "out")
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_definitions_of_a_pipeline_are_quoted_as_in_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configs: list[SdkConfig] = []
    monkeypatch.setattr("components.toolchain.__main__.make_sdk", configs.append)
    definitions = "LLVM_ENABLE_LTO=Thin CMAKE_CXX_FLAGS='-O1 -g' LLVM_DISTRIBUTION_COMPONENTS=a;b"
    arguments = ["--mode", "sdk", "--output", str(tmp_path / "sdk"), "--define", "A=1", "--definitions", definitions]
    main(arguments, standalone_mode=False)
    unquoted = {"LLVM_ENABLE_LTO": "Thin", "CMAKE_CXX_FLAGS": "-O1 -g", "LLVM_DISTRIBUTION_COMPONENTS": "a;b"}
    assert configs[0].definitions == {"A": "1"} | unquoted


@pytest.mark.parametrize("name", PRETRAINED_NAMES)
@pytest.mark.parametrize("own", ["inlining", "regalloc"])
def test_own_policy_replaces_the_pretrained_one(
    own: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs: list[ToolchainConfig] = []
    monkeypatch.setattr("components.toolchain.__main__.make_toolchain", configs.append)
    with publish(tmp_path / "policy", "policy") as partial:
        write_policy_info(partial, PolicyInfo(own, (), 2, trained_by="ppo"))
    arguments = ["--mode=release", f"--policy={name}", f"--policy={tmp_path / 'policy'}", f"--output={tmp_path / 'o'}"]
    main(arguments, standalone_mode=False)
    (config,) = configs
    assert tmp_path / "policy" in config.policies
    problems = {own, *pretrained_problems(name)}
    assert sorted(load_policy_info(policy).problem for policy in config.policies) == sorted(problems)
