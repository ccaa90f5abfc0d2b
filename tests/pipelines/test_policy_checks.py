"""Tests that policies that a release clang cannot embed are refused before the run starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.core.console import UserError
from components.core.formats.features import FeatureSpec
from components.core.formats.policy import PolicyInfo, write_policy_info
from pipelines.policy_checks import check_extra_policy


@pytest.mark.parametrize(
    ("problem", "llvm", "source", "named"),
    [
        ("regalloc", "19.1.7", True, "is a policy for regalloc, the problem of this run"),
        ("inlining", "22.1.0", True, r"trained with LLVM 22\.1\.0, but this run builds clang from LLVM 19"),
        ("inlining", "19.1.7", False, r"has no policy\.cpp"),
        ("inlining", "19.1.7", True, ""),
    ],
)
def test_unusable_extra_policy_is_refused(tmp_path: Path, problem: str, llvm: str, source: bool, named: str) -> None:
    write_policy_info(tmp_path, PolicyInfo(problem, (FeatureSpec("a", "int64"),), 2, "ppo", llvm_version=llvm))
    if source:
        (tmp_path / "policy.cpp").touch()
    if not named:
        return check_extra_policy(str(tmp_path), "regalloc", 19, "--extra-policy X")
    with pytest.raises(UserError, match=f"^--extra-policy X .*{named}") as caught:
        check_extra_policy(str(tmp_path), "regalloc", 19, "--extra-policy X")
    assert caught.value.remedy
