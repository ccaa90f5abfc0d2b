"""What a container is shown of this machine: what its step reads, and nothing that hides the container's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from components.console import UserError
from pipelines.mounts import shown_paths


def shown(*arguments: object) -> set[Path]:
    return set(shown_paths(["python", "-m", "components.launcher", *map(str, arguments)]))


def database(path: Path, *commands: tuple[object, object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    entries = [{"directory": str(d), "file": "a.c", "command": f"cc -c a.c -o {o}"} for d, o in commands]
    path.write_text(json.dumps(entries))
    return path


def made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def test_a_path_of_this_machine_is_shown_wherever_it_stands(tmp_path: Path) -> None:
    (tmp_path / "policy").mkdir()
    assert shown("--policy", tmp_path / "policy") == {tmp_path / "policy"}
    assert shown("--policy", f"file://{tmp_path}/policy") == {tmp_path / "policy"}
    others = ("deb", "git:llvmorg-19.1.7", "", "http://x/y", "gs://b/policy", tmp_path / "nowhere", '{"a": 1}')
    assert shown("--policy", *others) == set()


def test_a_build_is_shown_with_its_objects(tmp_path: Path) -> None:
    one, other = tmp_path / "build", tmp_path / "elsewhere"
    third = tmp_path / "deep" / "build"
    for path in (one / "CMakeFiles" / "a.o", other / "b.o", third / "c.o"):
        made(path)
    commands = ((one, "CMakeFiles/a.o"), (one, other / "b.o"), (third, "c.o"), (tmp_path / "gone", "d.o"))
    found = database(tmp_path / "src" / "cc.json", *commands)
    assert shown("--compile-commands", found) == {found, one, other, third}
    inside = database(one / "cc.json", (one, "CMakeFiles/a.o"))
    assert shown("--compile-commands", inside) == {one}


def test_a_build_in_a_directory_that_containers_have_is_shown_by_its_objects(tmp_path: Path) -> None:
    thing = made(tmp_path / "obj" / "a.o")
    found = database(tmp_path / "src" / "cc.json", ("/", str(thing).lstrip("/")), ("/tmp", thing))
    assert shown("--compile-commands", found) == {found, thing.parent}


@pytest.mark.parametrize("text", ["", "[1]", "{}", '[{"directory": 1, "command": "cc -o a.o"}]'])
def test_what_is_no_build_is_left_to_the_step(tmp_path: Path, text: str) -> None:
    (tmp_path / "cc.json").write_text(text)
    assert shown("--compile-commands", tmp_path / "cc.json") == {tmp_path / "cc.json"}


def test_a_recipe_is_shown_with_the_recipes_and_the_trees_that_it_names(tmp_path: Path) -> None:
    recipes, tree, gtest = tmp_path / "recipes", tmp_path / "tree", tmp_path / "gtest"
    for folder in (recipes, tree, gtest):
        folder.mkdir()
    (recipes / "one.yaml").write_text(
        "name: one\nsource: {path: ../tree}\nrequires: {gtest: {path: ../gtest}}\ncmake: {}\n"
    )
    (recipes / "set.yaml").write_text("projects: [one.yaml, lz4.yaml]\n")
    lz4 = Path(__file__).parents[2] / "components" / "corpus" / "recipes" / "lz4.yaml"
    assert shown("--recipe", recipes / "set.yaml") == {
        recipes / "set.yaml", recipes / "one.yaml", lz4, tree, gtest,
    }  # fmt: skip


@pytest.mark.parametrize("path", ["/", "/usr", "/usr/lib/", "/tmp"])
def test_what_would_hide_the_containers_own_is_refused(path: str) -> None:
    with pytest.raises(UserError, match="a container has") as raised:
        shown("--existing", path)
    assert "--runner process" in raised.value.remedy
