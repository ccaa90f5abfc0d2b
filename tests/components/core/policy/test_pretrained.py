"""The pretrained policies are complete, small, documented, and sufficient to build a release clang."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest

from components.core import problems
from components.core.formats.policy import (
    PRETRAINED,
    PRETRAINED_FOLDERS,
    PRETRAINED_LLVM,
    PRETRAINED_NAMES,
    PRETRAINED_THUMB,
    load_policy_info,
)
from components.core.policy.dense import read_dense
from components.core.policy.pretrained import (
    MODEL_CARD,
    RELEASED,
    known_projects,
    pretrained_name,
    pretrained_policy,
    pretrained_problems,
    pretrained_projects,
    release,
    resolve_pretrained,
)
from components.core.projects.recipe import load_recipes
from components.platform.errors import UserError
from components.platform.storage import require_artifact

RECIPES = Path(__file__).parents[4] / "components" / "core" / "projects" / "recipes"
POLICIES = [(name, problem) for name in PRETRAINED_NAMES for problem in pretrained_problems(name)]


@pytest.mark.parametrize(("name", "problem"), POLICIES)
def test_a_released_policy_becomes_an_artifact(name: str, problem: str, tmp_path: Path) -> None:
    policy = pretrained_policy(problem, tmp_path, name=name)
    require_artifact(policy, "policy")
    released, made = read_dense(RELEASED / PRETRAINED_FOLDERS[name][problem]), read_dense(policy)
    assert released.problem == problem and load_policy_info(policy).features == released.features
    for ours, theirs in zip(made.layers, released.layers, strict=True):
        np.testing.assert_array_equal(ours[0], theirs[0])
    assert (policy / "policy.cpp").stat().st_size > 1000
    before = (policy / "manifest.json").stat().st_mtime_ns
    assert pretrained_policy(problem, tmp_path, name=name) == policy
    assert (policy / "manifest.json").stat().st_mtime_ns == before


@pytest.mark.parametrize(("name", "problem"), POLICIES)
def test_a_released_policy_has_a_model_card_and_results(name: str, problem: str) -> None:
    folder = RELEASED / PRETRAINED_FOLDERS[name][problem]
    info = load_policy_info(folder)
    card = (folder / MODEL_CARD).read_text()
    assert info.corpus_digest in card and info.git_commit in card and re.search("mlgo (ppo|run) .*--seed", card)
    with open(folder / "by_package.csv") as file:
        rows = list(csv.DictReader(file))
    assert {row["trained_on"] for row in rows} == {"no", "other modules"}
    count_column = {"size": "policy_bytes", "score": "functions"}[problems.get(problem).objective]
    assert all(int(row[count_column]) > 0 for row in rows)


def test_inlining_has_a_pretrained_policy_and_all_are_small() -> None:
    assert all("inlining" in pretrained_problems(name) for name in PRETRAINED_NAMES)
    assert sum(path.stat().st_size for path in RELEASED.rglob("*") if path.is_file()) < 300_000


def test_a_problem_without_a_pretrained_policy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="for nothing"):
        pretrained_policy("nothing", tmp_path)


def test_given_policies_replace_pretrained_ones() -> None:
    own = RELEASED / "inlining"
    paths = resolve_pretrained([PRETRAINED, own], problems.names())
    assert paths[0] == own and [load_policy_info(path).problem for path in paths[1:]] == ["regalloc"]
    assert resolve_pretrained([PRETRAINED, own], ["inlining"]) == resolve_pretrained([own], []) == [own]
    for other in (PRETRAINED_LLVM, PRETRAINED_THUMB):
        with pytest.raises(UserError, match=str(other)):
            resolve_pretrained([PRETRAINED, other], problems.names())
    (thumb,) = resolve_pretrained([PRETRAINED_THUMB], problems.names())
    assert load_policy_info(thumb).problem == "inlining"
    with pytest.raises(UserError, match="pretrained-thumb"):
        resolve_pretrained([PRETRAINED_THUMB], ["regalloc"])


def test_release_compresses_the_weights_without_loss(tmp_path: Path) -> None:
    policy = pretrained_policy("inlining", tmp_path / "cache")
    release(policy, tmp_path / "released")
    assert (tmp_path / "released" / "weights.npz").stat().st_size < (policy / "weights.npz").stat().st_size / 3
    again, first = read_dense(tmp_path / "released"), read_dense(policy)
    for name, boundaries in first.buckets.items():
        np.testing.assert_array_equal(again.buckets[name], boundaries)


NEW_PROJECTS = {"dispatchers"}
"""Projects that recipes have had only since the pretrained policies were trained."""


@pytest.mark.parametrize(
    ("name", "problem", "recipe"),
    [
        (PRETRAINED, "inlining", "full"),
        (PRETRAINED_LLVM, "inlining", "full"),
        (PRETRAINED_THUMB, "inlining", "full"),
        (PRETRAINED, "regalloc", "debian-performance"),
    ],
)
def test_projects_of_the_training_are_listed(name: str, problem: str, recipe: str) -> None:
    projects = load_recipes(RECIPES / f"{recipe}.yaml")
    heldout = set(projects.split["heldout_projects"])
    assert (
        pretrained_projects(problem, name) == {project.name for project in projects.projects} - heldout - NEW_PROJECTS
    )


@pytest.mark.parametrize(("name", "problem"), POLICIES)
def test_policy_is_recognized_by_its_network(name: str, problem: str, tmp_path: Path) -> None:
    policy = pretrained_policy(problem, tmp_path, name=name)
    first = next(
        other for other, same in POLICIES if PRETRAINED_FOLDERS[other][same] == PRETRAINED_FOLDERS[name][problem]
    )
    assert pretrained_name(problem, policy) == first
    dense = read_dense(policy)
    dense.layers[0][0][0, 0] += 1
    dense.save(tmp_path)
    assert pretrained_name(problem, tmp_path) == "" == pretrained_name(problem, tmp_path / "missing")


@pytest.mark.parametrize(
    ("projects", "modules", "known"),
    [
        (["zstd"], ["zstd/a.o"], ["zstd"]),
        (["libzstd"], ["build/a.o"], ["zstd"]),
        (["zstd-1.5.4"], ["build/a.o"], ["zstd"]),
        (["app"], ["third_party/zstd/lib/a.o", "src/pugixml.o"], ["zstd"]),
        (["yaml-cpp"], ["CMakeFiles/yaml-cpp.dir/src/a.o"], []),
    ],
)
def test_projects_are_known_by_name_or_folder(projects: list[str], modules: list[str], known: list[str]) -> None:
    assert known_projects("inlining", PRETRAINED, projects, modules) == known
