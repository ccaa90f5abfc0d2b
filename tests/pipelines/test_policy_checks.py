"""Tests that policies that a release clang cannot embed are refused before the run starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.core.formats.features import FeatureSpec
from components.core.formats.policy import PolicyInfo, write_policy_info
from components.platform.errors import UserError
from pipelines.parameters.policy_checks import check_external_clang, check_extra_policy, check_start_features


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


def test_policy_may_need_only_features_that_external_clang_has(tmp_path: Path) -> None:
    users, linkage = FeatureSpec("callee_users", "int64"), FeatureSpec("callee_linkage", "int64")
    info = PolicyInfo("inlining", (users, linkage), 2, "ppo", optional_features={"callee_linkage": 0.0})
    write_policy_info(tmp_path, info)
    check_start_features(str(tmp_path), (users,))
    with pytest.raises(UserError, match="does not have: callee_users") as raised:
        check_start_features(str(tmp_path), (linkage,))
    assert raised.value.remedy
    check_start_features(str(tmp_path / "nowhere"), ())


@pytest.mark.toolchain
def test_external_clang_is_checked_before_a_run(
    upstream_clang: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clang = str(upstream_clang)
    check_external_clang(clang, 19, "inlining", "heuristic", own_sdk=False)
    write_policy_info(tmp_path, PolicyInfo("inlining", (FeatureSpec("callee_linkage", "int64"),), 2, "ppo"))
    with pytest.raises(UserError, match="uses features that LLVM itself does not have: callee_linkage"):
        check_external_clang(clang, 19, "inlining", str(tmp_path), own_sdk=False)
    write_policy_info(tmp_path, PolicyInfo("inlining", (FeatureSpec("callee_users", "int64"),), 2, "ppo"))
    check_external_clang(clang, 19, "inlining", str(tmp_path), own_sdk=False)
    installed = ("Debian clang version 19.1.6",)
    monkeypatch.setattr("pipelines.parameters.policy_checks.identify_toolchain", lambda _major: installed)
    with pytest.raises(UserError, match=r"clang 19\.1\.7, but the release clang will be Debian clang version 19\.1\.6"):
        check_external_clang(clang, 19, "inlining", "heuristic", own_sdk=False)
    check_external_clang(clang, 19, "inlining", "heuristic", own_sdk=True)
