"""Tests of which paths are mounted in a container: those its step reads, none that hides a directory of the image."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from components.core.projects.link_recorder.recorder import write_recorder
from components.platform.errors import UserError
from pipelines.local.runners.mounts import mounted_paths


def shown(*arguments: object) -> set[Path]:
    return set(mounted_paths(["python", "-m", "components.platform.launcher", *map(str, arguments)]))


def database(path: Path, *commands: tuple[object, object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    entries = [{"directory": str(d), "file": "a.c", "command": f"cc -c a.c -o {o}"} for d, o in commands]
    path.write_text(json.dumps(entries))
    return path


def make_directory(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def test_existing_absolute_paths_are_mounted(tmp_path: Path) -> None:
    (tmp_path / "policy").mkdir()
    assert shown("--policy", tmp_path / "policy") == {tmp_path / "policy"}
    assert shown("--policy", f"file://{tmp_path}/policy") == {tmp_path / "policy"}
    others = ("deb", "git:llvmorg-19.1.7", "", "http://x/y", "gs://b/policy", tmp_path / "nowhere", '{"a": 1}')
    assert shown("--policy", *others) == set()


def test_build_is_mounted_with_its_objects(tmp_path: Path) -> None:
    one, other = tmp_path / "build", tmp_path / "elsewhere"
    third = tmp_path / "deep" / "build"
    for path in (one / "CMakeFiles" / "a.o", other / "b.o", third / "c.o"):
        made(path)
    commands = ((one, "CMakeFiles/a.o"), (one, other / "b.o"), (third, "c.o"), (tmp_path / "gone", "d.o"))
    compile_commands = database(tmp_path / "src" / "cc.json", *commands)
    assert shown("--compile-commands", compile_commands) == {compile_commands, one, other, third}
    inside = database(one / "cc.json", (one, "CMakeFiles/a.o"))
    assert shown("--compile-commands", inside) == {one}


def test_build_in_image_directory_is_mounted_by_its_objects(tmp_path: Path) -> None:
    thing = made(tmp_path / "obj" / "a.o")
    compile_commands = database(tmp_path / "src" / "cc.json", ("/", str(thing).lstrip("/")), ("/tmp", thing))
    assert shown("--compile-commands", compile_commands) == {compile_commands, thing.parent}


@pytest.mark.parametrize("text", ["", "[1]", "{}", '[{"directory": 1, "command": "cc -o a.o"}]'])
def test_invalid_compilation_database_is_left_to_the_step(tmp_path: Path, text: str) -> None:
    (tmp_path / "cc.json").write_text(text)
    assert shown("--compile-commands", tmp_path / "cc.json") == {tmp_path / "cc.json"}


def test_recipe_is_mounted_with_recipes_and_trees_it_names(tmp_path: Path) -> None:
    recipes, tree, gtest = tmp_path / "recipes", tmp_path / "tree", tmp_path / "gtest"
    for folder in (recipes, tree, gtest):
        folder.mkdir()
    (recipes / "one.yaml").write_text(
        "name: one\nsource: {path: ../tree}\nrequires: {gtest: {path: ../gtest}}\ncmake: {}\n"
    )
    (recipes / "set.yaml").write_text("projects: [one.yaml, lz4.yaml]\n")
    lz4 = Path(__file__).parents[4] / "components" / "core" / "projects" / "recipes" / "lz4.yaml"
    assert shown("--recipe", recipes / "set.yaml") == {
        recipes / "set.yaml",
        recipes / "one.yaml",
        lz4,
        tree,
        gtest,
    }


@pytest.mark.parametrize("path", ["/", "/usr", "/usr/lib/", "/tmp"])
def test_mount_that_hides_image_directory_is_refused(path: str) -> None:
    with pytest.raises(UserError, match="would hide") as raised:
        shown("--existing", path)
    assert "--runner process" in raised.value.remedy


def test_input_of_an_extraction_is_mounted_with_what_it_names(tmp_path: Path) -> None:
    build, other = tmp_path / "build", tmp_path / "elsewhere"
    for path in (build / "a.o", other / "b.o"):
        made(path)
    listed = database(tmp_path / "src" / "cc.json", (build, "a.o"), (build, other / "b.o"))
    assert shown("--input", listed) == {listed, build, other}
    (tmp_path / "link.params").write_text("-o\nprogram\na.o\n")
    assert shown("--input", tmp_path / "link.params", "--obj-base-dir", build) == {tmp_path / "link.params", build}
    assert shown("--input", other) == {other}


def test_recorded_links_are_mounted_with_the_directories_of_their_links(tmp_path: Path) -> None:
    compilers, build = tmp_path / "compilers", tmp_path / "build"
    made(build / "program")
    write_recorder(make_directory(compilers), "/usr/bin/ld.lld", "$here/links", "-Oz")
    record = make_directory(compilers / "links" / "link-1")
    texts = {"directory": str(build), "output": "program", "level": "-Oz", "status": "0", "messages": ""}
    for name, text in {**texts, "arguments": "-o\0program\0"}.items():
        (record / name).write_text(text)
    assert shown("--input", compilers) == {compilers, build}
