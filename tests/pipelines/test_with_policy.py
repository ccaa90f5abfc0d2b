"""What a run's release clang cannot carry is refused before the run begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.console import UserError
from components.formats.features import FeatureSpec
from components.formats.policy import PolicyInfo, write_policy_info
from pipelines.with_policy import check_with_policy


@pytest.mark.parametrize(
    ("problem", "llvm", "source", "named"),
    [
        ("regalloc", "19.1.7", True, "is a policy for regalloc, the problem of this run"),
        ("inlining", "22.1.0", True, r"trained with LLVM 22\.1\.0, and this run's clangs are LLVM 19"),
        ("inlining", "19.1.7", False, r"has no policy\.cpp"),
        ("inlining", "19.1.7", True, ""),
    ],
)
def test_a_policy_that_does_not_fit_is_named(
    tmp_path: Path, problem: str, llvm: str, source: bool, named: str
) -> None:
    write_policy_info(tmp_path, PolicyInfo(problem, (FeatureSpec("a", "int64"),), 2, "ppo", llvm_version=llvm))
    if source:
        (tmp_path / "policy.cpp").touch()
    if not named:
        return check_with_policy(str(tmp_path), "regalloc", 19, "--with-policy X")
    with pytest.raises(UserError, match=f"^--with-policy X .*{named}") as caught:
        check_with_policy(str(tmp_path), "regalloc", 19, "--with-policy X")
    assert caught.value.remedy
