"""Recipes: content, validation and error messages; the packaged recipes load."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from components.core.projects.recipe import Recipe, Source, load_recipes, locate_recipe
from components.core.projects.recipe_document import Benchmark, Input
from components.platform.errors import UserError
from components.platform.storage.uri import ObjectUri

RECIPES = Path(__file__).parents[4] / "components/core/projects/recipes"
GOOD = {"name": "p", "source": {"path": "src"}, "cmake": {"options": {"A": "B"}}}


def load(tmp_path: Path, document: object) -> Recipe:
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return load_recipes(path).projects[0]


def test_a_recipe_is_named_by_its_file_its_uri_or_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").mkdir()
    assert locate_recipe("demo") == RECIPES / "demo.yaml", "a folder of that name is no recipe"
    assert locate_recipe("gs://bucket/r.yaml") == ObjectUri("gs", "bucket", "r.yaml")
    (tmp_path / "tiny").touch()
    assert locate_recipe("tiny") == RECIPES / "tiny.yaml", "a word has one meaning in every directory"
    assert locate_recipe("./tiny") == Path("tiny")


@pytest.mark.parametrize("text", ["demmo", "nowhere/demo", "../recipes/demo", ""])
def test_missing_recipe_error_lists_the_packaged_ones(text: str) -> None:
    with pytest.raises(UserError, match="recipe") as raised:
        locate_recipe(text)
    assert "abseil, " in raised.value.remedy and ", demo, " in raised.value.remedy


def test_the_demo_has_its_nine_projects_and_holds_out_known_ones() -> None:
    demo = load_recipes(RECIPES / "demo.yaml")
    names = {recipe.name for recipe in demo.projects}
    assert names == {"zstd", "lz4", "snappy", "leveldb", "fmtlib", "tinyxml2", "pugixml", "double-conversion", "abseil"}
    heldout = set(demo.split["heldout_projects"])
    assert heldout and heldout < names
    assert all(demo.project(name).binaries for name in heldout), "held-out projects are compared as users get them"
    assert all(recipe.source.kind == "deb" for recipe in demo.projects)


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.yaml")), ids=lambda path: path.stem)
def test_packaged_recipes_are_valid(path: Path) -> None:
    recipes = load_recipes(path)
    assert len({recipe.name for recipe in recipes.projects}) == len(recipes.projects)
    heldout = recipes.split.get("heldout_projects", [])
    projects = [recipes.project(name) for name in heldout]
    # They are compared as users get them.
    assert all(recipe.binaries or recipe.debian for recipe in projects)


def test_the_full_recipe_has_all_projects_of_the_demo() -> None:
    demo, full = (load_recipes(RECIPES / f"{name}.yaml") for name in ("demo", "full"))
    assert {recipe.name for recipe in demo.projects} < {recipe.name for recipe in full.projects}
    assert set(demo.split["heldout_projects"]) < set(full.split["heldout_projects"])


def test_every_key_of_a_project(tmp_path: Path) -> None:
    recipe = load(
        tmp_path,
        {
            "name": "p",
            "source": {"git": "https://example.org/p.git", "tag": "v1"},
            "requires": {"gtest": {"deb": "googletest"}, "z": {"url": "http://x/z.tar.gz", "sha256": "AB" * 32}},
            "prepare": ["true"],
            "cmake": {"directory": "build", "options": {"ON_": True, "N": 3, "S": "text"}, "targets": ["p"]},
            "exclude": ["*/t/*"],
            "cflags": ["-w"],
            "binaries": ["libp.so.*"],
            "benchmarks": [{"name": "b", "program": "p", "stdin": True, "input": {"text": "t"}}],
        },
    )
    assert recipe == Recipe(
        "p",
        Source("git", "https://example.org/p.git", "v1"),
        requires=(("gtest", Source("deb", "googletest")), ("z", Source("url", "http://x/z.tar.gz", "ab" * 32))),
        prepare=("true",),
        directory="build",
        cmake_options=(("ON_", "ON"), ("N", "3"), ("S", "text")),
        targets=("p",),
        exclude=("*/t/*",),
        cflags=("-w",),
        binaries=("libp.so.*",),
        benchmarks=(Benchmark("b", "p", input=Input(text="t"), stdin=True),),
    )


def test_a_path_is_relative_to_the_recipe(tmp_path: Path) -> None:
    recipe = load(tmp_path, {"name": "p", "source": {"path": "../p"}, "commands": ["make"]})
    assert recipe.source.location == str(tmp_path.parent / "p")
    assert recipe.commands == ("make",) and recipe.cmake_options is None


def test_a_set_names_files_or_contains_projects(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(yaml.safe_dump({**GOOD, "name": "a"}))
    (tmp_path / "set.yaml").write_text(yaml.safe_dump({"projects": ["a.yaml", GOOD], "split": {"seed": 4}}))
    recipes = load_recipes(tmp_path / "set.yaml")
    assert [recipe.name for recipe in recipes.projects] == ["a", "p"] and recipes.split == {"seed": 4}
    with pytest.raises(UserError, match="'b'"):
        recipes.project("b")


def test_packages_are_projects_that_build_by_their_own_rules(tmp_path: Path) -> None:
    debian = {"name": "own", "source": {"path": "own"}, "build": "debian", "exclude": ["t/*"], "binaries": ["*/bin/*"]}
    content = {"projects": [GOOD, debian], "packages": ["zlib", "libxml++2.6=2.40.1-3"], "split": {"seed": 4}}
    (tmp_path / "set.yaml").write_text(yaml.safe_dump(content))
    own, zlib, xml = load_recipes(tmp_path / "set.yaml").projects[1:]
    assert own == Recipe(
        "own", Source("path", str(tmp_path / "own")), debian=True, exclude=("t/*",), binaries=("*/bin/*",)
    )
    assert zlib == Recipe("zlib", Source("deb", "zlib"), debian=True)
    assert xml == Recipe("libxml++2.6", Source("deb", "libxml++2.6=2.40.1-3"), debian=True)


def test_the_debian_recipe_has_no_project_of_another_one_for_inlining() -> None:
    debian = load_recipes(RECIPES / "debian.yaml")
    names = {recipe.name for recipe in debian.projects}
    assert len(names) >= 100 and len(debian.split["heldout_projects"]) >= 25
    assert set(debian.split["heldout_projects"]) < names
    for path in RECIPES.glob("*.yaml"):
        if path.stem not in ("debian", "debian-performance"):  # the second is for register allocation only
            others = load_recipes(path).projects
            assert not names & {name for recipe in others for name in (recipe.name, recipe.source.location)}, path


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"build": "debian"}, "exactly one of cmake, commands and build: debian"),
        ({"sorce": 1}, "unknown field `sorce`"),
        ({"name": ""}, "`str` of length >= 1 - at `.*name`"),
        ({"name": "../up"}, "letters, digits"),
        ({"name": ".hidden"}, "letters, digits"),
        ({"source": {}}, "exactly one of deb, git with tag, url with sha256, and path"),
        ({"source": {"deb": "a", "git": "b"}}, "exactly one of deb, git with tag, url with sha256, and path"),
        ({"source": {"git": "b"}}, "exactly one of deb, git with tag, url with sha256, and path"),
        ({"source": {"deb": "a", "tag": "b"}}, "exactly one of deb, git with tag, url with sha256, and path"),
        ({"source": {"url": "u", "sha256": "123"}}, "64 hexadecimal digits"),
        ({"source": "zstd"}, "Expected `object`, got `str` - at `.*source`"),
        ({"commands": ["make"]}, "exactly one of cmake, commands and build"),
        ({"cmake": {"option": {}}}, "unknown field `option` - at `.*cmake`"),
        ({"cmake": {"options": {"A": ["b"]}}}, "got `array` - at `.*options"),
        ({"binaries": "lib.so"}, "Expected `array`, got `str` - at `.*binaries`"),
        ({"exclude": [3]}, "Expected `str`, got `int` - at `.*exclude"),
        ({"requires": {"g": {}}}, "requires: g: a source is exactly"),
        ({"benchmarks": {}}, "Expected `array`, got `object` - at `.*benchmarks`"),
        ({"benchmarks": [{"name": "b"}]}, "missing required field `program` - at `.*benchmarks"),
    ],
)
def test_error_names_the_invalid_key(tmp_path: Path, change: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        load(tmp_path, {**GOOD, **change})
    assert str(tmp_path / "recipe.yaml") in caught.value.problem and caught.value.remedy


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "not valid YAML"),
        ("", "Expected `object`, got `null`"),
        ("- a", "Expected `object`, got `array`"),
        ("projects: []", "projects is empty"),
        ("packages: []", "packages is empty"),
        ("packages: [-oDebug]", "'-oDebug' is not the name of a source package"),
        ("packages: [zlib, zlib]", "two projects are named 'zlib'"),
        ("{name: a, source: {git: u, tag: t}, build: debian}", "build: debian needs a source package"),
        ("{name: a, source: {deb: a0}, build: rpm}", "Invalid enum value 'rpm' - at `.*build`"),
        ("projects: [none.yaml]", r"no recipe at .*none\.yaml"),
        ("projects: a.yaml", "Expected `array`, got `str` - at `.*projects`"),
        ("projects: [3]", "got `int` - at `.*projects"),
        ("{projects: [], other: 1}", "unknown field `other`"),
        # A source is neither an option nor a local file.
        ("{name: a, source: {deb: '-oDPkg::Pre-Invoke::=id'}, cmake: {}}", "not the name of a source package"),
        ("{name: a, source: {deb: ../../x}, cmake: {}}", "not the name of a source package"),
        (f"{{name: a, source: {{url: 'file:///x', sha256: '{'0' * 64}'}}, cmake: {{}}}}", "a file on a web server"),
        ("{name: a, source: {git: --upload-pack=id, tag: v1}, cmake: {}}", "is not a URL"),
        ("{name: a, source: {git: 'https://h/r', tag: --x}, cmake: {}}", "is not a tag"),
        ('{name: a, source: {path: "a\\0b"}, cmake: {}}', "contains NUL"),
        ("{name: a, source: {deb: aa}, cmake: {options: {A: .nan}}}", "options: A is"),
        ("{name: a, source: {deb: aa}, cmake: {options: {A: .inf}}}", "options: A is"),
        ("{name: a, source: {deb: aa}, cmake: {options: {A: -.inf}}}", "options: A is"),
        ("projects: [lz4.yaml]\ntarget: {triple: arm}\n", "'arm' is not a triple"),
        ("projects: [lz4.yaml]\ntarget: {triple: '--arm -o x'}\n", "is not a triple"),
        ("projects: [lz4.yaml]\ntarget: {triple: arm-none-eabi, sysroot: /nowhere}\n", "there is no sysroot /nowhere"),
        ("projects: [lz4.yaml]\ntarget: {cpu: arm}\n", "target"),
        ("packages: [lzip]\ntarget: {triple: arm-none-eabi}\n", "lzip is built by its debian/rules"),
    ],
)
def test_invalid_recipe_files_are_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "r.yaml").write_text(text)
    with pytest.raises(UserError, match=words):
        load_recipes(tmp_path / "r.yaml")


def test_missing_files_and_directories(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such"):
        load_recipes(tmp_path / "r.yaml")
    with pytest.raises(UserError, match="directory"):
        load_recipes(tmp_path)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "source", "deb", "cmake", "options", "projects", "requires"]), inner)
    ),
    max_leaves=12,
)


@given(VALUES)
def test_any_document_is_a_recipe_or_a_user_error(tmp_path_factory: pytest.TempPathFactory, value: object) -> None:
    path = tmp_path_factory.mktemp("any") / "r.yaml"
    path.write_text(yaml.safe_dump(value))
    try:
        assert load_recipes(path).projects
    except UserError as error:
        assert str(path.parent) in error.problem


def test_a_target_is_of_all_projects_whose_programs_then_do_not_run_here(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    target = f"{{triple: aarch64-linux-gnu, sysroot: {tmp_path / 'root'}, cflags: [-mcpu=cortex-a53]}}"
    (tmp_path / "set.yaml").write_text(f"projects: [lz4.yaml, cjson.yaml]\ntarget: {target}\n")
    for recipe in load_recipes(tmp_path / "set.yaml").projects:
        assert recipe.target is not None and not recipe.benchmarks
        assert recipe.target.flags() == ["--target=aarch64-linux-gnu", f"--sysroot={tmp_path / 'root'}"]
        assert recipe.target.cflags == ("-mcpu=cortex-a53",)
