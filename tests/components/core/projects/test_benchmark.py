"""Benchmarks in recipes: content, validation and generated input files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core.projects.benchmark import check_benchmarks, make_input
from components.core.projects.recipe import PACKAGED, load_recipes
from components.core.projects.recipe_document import MAX_INPUT_BYTES, Benchmark, Input, convert
from components.platform.errors import UserError

RUN = {"name": "run", "program": "p"}
READS = {**RUN, "arguments": ["{input}"], "input": {"text": "x"}}


def parse(*entries: Any) -> tuple[Benchmark, ...]:
    benchmarks = convert(list(entries), tuple[Benchmark, ...], "r.yaml: p: benchmarks")
    check_benchmarks(benchmarks, "r.yaml: p")
    return benchmarks


def test_every_key() -> None:
    assert parse(
        {
            "name": "pack",
            "program": "bin/*",
            "arguments": ["-o", "{output}", "--in={input}"],
            "input": {"files": ["src/**/*.c", "doc/[ab].txt"], "bytes": 1000},
        },
        {"name": "unpack", "program": "p", "input": {"output_of": "pack"}, "stdin": True},
        {"name": "script", "program": "q", "arguments": ["{source}/a", "{input}"], "input": {"text": "1\n"}},
        {"name": "alone", "program": "r"},
    ) == (
        Benchmark(
            "pack",
            "bin/*",
            ("-o", "{output}", "--in={input}"),
            Input(files=("src/**/*.c", "doc/[ab].txt"), bytes=1000),
        ),
        Benchmark("unpack", "p", (), Input(output_of="pack"), stdin=True),
        Benchmark("script", "q", ("{source}/a", "{input}"), Input(text="1\n")),
        Benchmark("alone", "r"),
    )
    assert parse() == ()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"prog": "p"}, "unknown field `prog`"),
        ({"name": "a/b"}, "letters, digits"),
        ({"name": ".."}, "letters, digits"),
        ({"name": 3}, "Expected `str`, got `int` - at `.*name`"),
        ({"program": "/bin/true"}, "must be a relative path"),
        ({"program": "../true"}, "must be a relative path"),
        ({"program": "a**b"}, "must be a relative path"),
        ({"program": "."}, "must be a relative path"),
        ({"arguments": "-v"}, "Expected `array`, got `str` - at `.*arguments`"),
        ({"arguments": ["{inptu}", "{input}"]}, "unknown placeholder {inptu}"),
        ({"arguments": []}, "its input is not used"),
        ({"stdin": "yes"}, "Expected `bool`, got `str` - at `.*stdin`"),
        ({"input": {}}, "exactly one of text, files with bytes, and output_of"),
        ({"input": {"text": "a", "output_of": "b"}}, "exactly one of text, files with bytes, and output_of"),
        ({"input": {"text": "a", "bytes": 3}}, "exactly one of text, files with bytes, and output_of"),
        ({"input": {"files": ["*"]}}, "exactly one of text, files with bytes, and output_of"),
        ({"input": {"files": [], "bytes": 3}}, "files is empty"),
        ({"input": {"files": ["/etc/passwd"], "bytes": 3}}, "must be a relative path"),
        ({"input": {"files": ["*"], "bytes": 0}}, "Expected `int` >= 1 - at `.*bytes`"),
        ({"input": {"files": ["*"], "bytes": True}}, r"Expected `int \| null`, got `bool` - at `.*bytes`"),
        ({"input": {"files": ["*"], "bytes": MAX_INPUT_BYTES + 1}}, "Expected `int` <= 1073741824 - at `.*bytes`"),
        ({"input": {"output_of": "run"}}, "no benchmark 'run' stands before"),
    ],
)
def test_error_names_the_invalid_key(change: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        parse({**READS, **change})
    assert caught.value.problem.startswith("r.yaml: p: benchmarks") and caught.value.remedy


def test_duplicate_names_and_missing_inputs_are_refused() -> None:
    with pytest.raises(UserError, match="'run'"):
        parse(RUN, RUN)
    with pytest.raises(UserError, match="missing"):
        parse({**RUN, "arguments": ["{input}"]})
    with pytest.raises(UserError, match="missing"):
        parse({**RUN, "stdin": True})
    with pytest.raises(UserError, match="'run'"):
        parse(RUN, {**READS, "name": "second", "input": {"output_of": "run"}})


KEYS = ["name", "program", "arguments", "input", "stdin", "text", "files", "bytes", "output_of"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["{input}", "{output}", "a", "**", "/"]) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner),
    max_leaves=12,
)


@given(st.lists(st.dictionaries(st.sampled_from(KEYS[:5]), VALUES) | VALUES, max_size=3))
def test_any_value_is_benchmarks_or_a_user_error(entries: list[Any]) -> None:
    try:
        benchmarks = parse(*entries)
    except UserError as error:
        assert error.problem.startswith("r.yaml: p")
        return
    assert [benchmark.name for benchmark in benchmarks] == [entry["name"] for entry in entries]


@given(st.text(alphabet="ab*?[]./!-", min_size=1, max_size=8))
def test_accepted_program_globs_can_be_searched(tmp_path_factory: pytest.TempPathFactory, glob: str) -> None:
    try:
        program = parse({**RUN, "program": glob})[0].program
    except UserError:
        return
    directory = tmp_path_factory.getbasetemp() / "build"
    directory.mkdir(exist_ok=True)
    assert all(path.is_relative_to(directory) for path in directory.glob(program))


@given(
    st.dictionaries(st.text(alphabet="abz", min_size=1, max_size=3), st.binary(max_size=20), min_size=1, max_size=5),
    st.integers(1, 200),
)
def test_an_input_is_the_files_in_order_repeated_or_cut(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes], size_bytes: int
) -> None:
    directory = tmp_path_factory.mktemp("source")
    for name, content in files.items():
        (directory / "src" / name[0]).mkdir(parents=True, exist_ok=True)
        (directory / "src" / name[0] / f"{name}.c").write_bytes(content)
    (directory / "src" / "no.h").write_bytes(b"not this one")
    output = directory / "input"
    whole = b"".join(files[name] for name in sorted(files, key=lambda name: f"src/{name[0]}/{name}.c"))
    definition = Input(files=("src/**/*.c", "src/a/*.c"), bytes=size_bytes)
    if not whole:
        with pytest.raises(UserError, match="content"):
            make_input(definition, directory, output)
        return
    make_input(definition, directory, output)
    assert output.read_bytes() == (whole * size_bytes)[:size_bytes]


def test_a_text_is_its_own_input(tmp_path: Path) -> None:
    make_input(Input(text="print('ü')\n"), tmp_path, tmp_path / "input")
    assert (tmp_path / "input").read_text(encoding="utf-8") == "print('ü')\n"


@pytest.mark.parametrize("name", ["codecs", "performance"])
def test_benchmarked_projects_are_held_out(name: str) -> None:
    recipes = load_recipes(PACKAGED / f"{name}.yaml")
    heldout = recipes.split["heldout_projects"]
    assert all(recipes.project(project).benchmarks for project in heldout)
    assert set(heldout) < {project.name for project in recipes.projects}


def test_the_performance_recipe_has_all_projects_of_the_demo_and_holds_out_what_runs() -> None:
    demo, performance = (load_recipes(PACKAGED / f"{name}.yaml") for name in ("demo", "performance"))
    assert set(demo.projects) < set(performance.projects)
    runs = {project.name for project in performance.projects if project.benchmarks}
    assert runs == set(performance.split["heldout_projects"])


def test_all_projects_of_the_cpp_performance_recipe_have_benchmarks() -> None:
    recipes = load_recipes(PACKAGED / "performance-cpp.yaml")
    assert recipes.split["heldout_fraction"] == 1 and all(project.benchmarks for project in recipes.projects)
