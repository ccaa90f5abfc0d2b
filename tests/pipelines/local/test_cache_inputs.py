"""Tests of the identity of inputs that are not artifacts: recipes, builds, trees."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from components.platform.errors import UserError
from pipelines.local.cache_inputs import identify_build, identify_path, identify_recipe, identify_toolchain


def test_recipe_identity_covers_recipes_it_names(tmp_path: Path) -> None:
    recipe, part = tmp_path / "set.yaml", tmp_path / "lz4.yaml"
    recipe.write_text("projects: [lz4.yaml]\n")
    part.write_text("name: lz4\nsource: {deb: lz4}\ncmake: {directory: build/cmake}\n")
    before = identify_recipe(recipe)
    part.write_text("# a comment\nname: lz4\nsource: {deb: lz4}\ncmake: {directory: build/cmake}\n")
    assert identify_recipe(recipe) == before
    part.write_text("name: lz4\nsource: {deb: lz4}\ncmake: {directory: build/other}\n")
    assert identify_recipe(recipe) != before


def test_recipe_identity_covers_local_tree(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "CMakeLists.txt").write_text("")
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(f"name: mine\nsource: {{path: {tree}}}\ncmake: {{}}\n")
    before = identify_recipe(recipe)
    assert identify_recipe(recipe) == before
    (tree / "a.c").write_text("int a;\n")
    assert identify_recipe(recipe) != before


def test_recipe_identity_covers_the_commit_of_a_tag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLGO_CACHE_DIR", str(tmp_path / "cache"))
    tree, recipe = tmp_path / "tree", tmp_path / "mine.yaml"
    tree.mkdir()
    recipe.write_text(f"name: mine\nsource: {{git: '{tree.as_uri()}', tag: v1}}\ncmake: {{}}\n")
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b.invalid", "-C", str(tree))
    subprocess.run([*git, "init", "-q"], check=True)
    identities = set()
    for number in range(2):
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", str(number)], check=True)
        subprocess.run([*git, "tag", "-f", "v1"], check=True, capture_output=True)
        identities.add(identify_recipe(recipe))
    assert len(identities) == 2 and identify_recipe(recipe) in identities


def test_invalid_recipe_is_user_error(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("name: [\n")
    with pytest.raises(UserError, match=r"r\.yaml"):
        identify_recipe(tmp_path / "r.yaml")


def test_build_identity_covers_its_objects(tmp_path: Path) -> None:
    database, made = tmp_path / "compile_commands.json", tmp_path / "a.o"
    database.write_text(json.dumps([{"directory": str(tmp_path), "file": "a.c", "command": "cc -c a.c -o a.o"}]))
    absent = identify_build(database)
    made.write_bytes(b"one")
    first = identify_build(database)
    os.utime(made, (1, 1))
    assert len({absent, first, identify_build(database)}) == 3


@pytest.mark.parametrize("content", ["", "{}", "[1]", '[{"directory": 1}]', "[[]]", "null"])
def test_invalid_compilation_database_is_left_to_the_step(tmp_path: Path, content: str) -> None:
    (tmp_path / "compile_commands.json").write_text(content)
    assert len(identify_build(tmp_path / "compile_commands.json")) == 1


def test_tree_identity_covers_names_sizes_and_times(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "deep").mkdir(parents=True)
    (tree / "deep" / "a").write_text("1")
    seen = {identify_path(tree)}
    (tree / "deep" / "a").write_text("12")
    seen.add(identify_path(tree))
    os.utime(tree / "deep" / "a", (5, 5))
    seen.add(identify_path(tree))
    (tree / "deep" / "a").rename(tree / "deep" / "b")
    seen.add(identify_path(tree))
    (tree / "deep" / "a").symlink_to("nowhere")
    seen.add(identify_path(tree))
    assert len(seen) == 5 and identify_path(tree) in seen


def test_installed_clang_is_identified_by_version() -> None:
    assert "clang version 19." in identify_toolchain(19)[0]
    assert identify_toolchain(1) == ()
