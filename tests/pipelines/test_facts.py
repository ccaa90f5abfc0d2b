"""What identifies inputs that are no artifacts: recipes, builds, trees."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from components.console import UserError
from pipelines.facts import build_facts, content_facts, recipe_facts, toolchain_facts


def test_a_recipe_is_what_it_and_the_recipes_it_names_say(tmp_path: Path) -> None:
    recipe, part = tmp_path / "set.yaml", tmp_path / "lz4.yaml"
    recipe.write_text("projects: [lz4.yaml]\n")
    part.write_text("name: lz4\nsource: {deb: lz4}\ncmake: {directory: build/cmake}\n")
    before = recipe_facts(recipe)
    part.write_text("# a comment\nname: lz4\nsource: {deb: lz4}\ncmake: {directory: build/cmake}\n")
    assert recipe_facts(recipe) == before
    part.write_text("name: lz4\nsource: {deb: lz4}\ncmake: {directory: build/other}\n")
    assert recipe_facts(recipe) != before


def test_a_recipe_of_a_local_tree_changes_with_the_tree(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "CMakeLists.txt").write_text("")
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(f"name: mine\nsource: {{path: {tree}}}\ncmake: {{}}\n")
    before = recipe_facts(recipe)
    assert recipe_facts(recipe) == before
    (tree / "a.c").write_text("int a;\n")
    assert recipe_facts(recipe) != before


def test_a_recipe_that_is_none_is_the_users_error(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("name: [\n")
    with pytest.raises(UserError, match=r"r\.yaml"):
        recipe_facts(tmp_path / "r.yaml")


def test_a_build_changes_with_its_objects(tmp_path: Path) -> None:
    database, made = tmp_path / "compile_commands.json", tmp_path / "a.o"
    database.write_text(json.dumps([{"directory": str(tmp_path), "file": "a.c", "command": "cc -c a.c -o a.o"}]))
    absent = build_facts(database)
    made.write_bytes(b"one")
    first = build_facts(database)
    os.utime(made, (1, 1))
    assert len({absent, first, build_facts(database)}) == 3


@pytest.mark.parametrize("content", ["", "{}", "[1]", '[{"directory": 1}]', "[[]]", "null"])
def test_what_is_no_compilation_database_is_left_to_the_step(tmp_path: Path, content: str) -> None:
    (tmp_path / "compile_commands.json").write_text(content)
    assert len(build_facts(tmp_path / "compile_commands.json")) == 1


def test_a_tree_changes_with_names_sizes_and_times_of_its_files(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "deep").mkdir(parents=True)
    (tree / "deep" / "a").write_text("1")
    seen = {content_facts(tree)}
    (tree / "deep" / "a").write_text("12")
    seen.add(content_facts(tree))
    os.utime(tree / "deep" / "a", (5, 5))
    seen.add(content_facts(tree))
    (tree / "deep" / "a").rename(tree / "deep" / "b")
    seen.add(content_facts(tree))
    (tree / "deep" / "a").symlink_to("nowhere")
    seen.add(content_facts(tree))
    assert len(seen) == 5 and content_facts(tree) in seen


def test_the_installed_clang_names_its_version() -> None:
    assert "clang version 19." in toolchain_facts(19)[0]
    assert toolchain_facts(1) == ()
