"""Benchmarks of a project: runs of its built programs, whose executed instructions are counted.

A run must execute the same instructions each time: one thread, no loop that ends by the clock, no hash that is seeded
from addresses or the time. Its input is generated from the recipe, so that nothing has to be downloaded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from components.core.projects.recipe_document import Benchmark, Input, recipe_error
from components.platform.errors import UserError

_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


def check_benchmarks(benchmarks: Sequence[Benchmark], where: str) -> None:
    """Raise UserError if names, globs, placeholders or inputs are wrong; `where` is for messages."""
    earlier: dict[str, Benchmark] = {}
    for benchmark in benchmarks:
        section, name = f"{where}: benchmarks", benchmark.name
        if not _NAME.fullmatch(name):
            problem = f"name {name!r} must be letters, digits and ._+-, and begin with a letter or digit"
            raise recipe_error(section, problem)
        if name in earlier:
            raise recipe_error(section, f"two benchmarks are named {name!r}")
        _check(benchmark, earlier, f"{section}: {name}")
        earlier[name] = benchmark


def make_input(definition: Input, source_dir: Path, output: Path) -> None:
    """Write the input file of a benchmark to `output`, unless it is the output of another benchmark.

    Raises:
        UserError: no file of the source matches, or all matching files are empty.
    """
    if definition.files is None or definition.bytes is None:
        output.write_text(definition.text or "", encoding="utf-8")
        return
    matches = {path for glob in definition.files for path in source_dir.glob(glob) if path.is_file()}
    content = bytearray()
    for path in sorted(matches, key=lambda path: path.relative_to(source_dir).as_posix()):
        content += path.read_bytes()
        if len(content) >= definition.bytes:
            break
    if not content:
        raise UserError(
            f"no input for a benchmark: {', '.join(definition.files)} match no content in {source_dir}",
            "correct files in the benchmark's input",
        )
    repeated = content * -(-definition.bytes // len(content))
    output.write_bytes(repeated[: definition.bytes])


def _check(benchmark: Benchmark, earlier: Mapping[str, Benchmark], where: str) -> None:
    _require_glob(benchmark.program, f"{where}: program")
    placeholders = {name for argument in benchmark.arguments for name in _PLACEHOLDER.findall(argument)}
    for name in sorted(placeholders - {"input", "output", "source"}):
        remedy = "the placeholders are {input}, {output} and {source}"
        raise recipe_error(where, f"unknown placeholder {{{name}}}", remedy)
    if benchmark.input is not None:
        _check_input(benchmark.input, earlier, f"{where}: input")
    if (benchmark.input is not None) != (benchmark.stdin or "input" in placeholders):
        problem = "input is missing" if benchmark.input is None else "its input is not used"
        raise recipe_error(where, problem, "give an input, and pass it as {input} in arguments or by stdin: true")


def _check_input(definition: Input, earlier: Mapping[str, Benchmark], where: str) -> None:
    keys = {key for key in definition.__struct_fields__ if getattr(definition, key) is not None}
    if keys not in ({"text"}, {"output_of"}, {"files", "bytes"}):
        raise recipe_error(where, "an input is exactly one of text, files with bytes, and output_of")
    if (name := definition.output_of) is not None and (name not in earlier or not earlier[name].writes_output):
        raise recipe_error(where, f"no benchmark {name!r} stands before this one and writes {{output}}")
    if definition.files == ():
        raise recipe_error(where, "files is empty")
    for glob in definition.files or ():
        _require_glob(glob, f"{where}: files")


def _require_glob(glob: str, where: str) -> None:
    """Refuse globs that `Path.glob` does not support, and those that lead out of the directory."""
    path = PurePosixPath(glob)
    wrong = not path.parts or path.is_absolute()
    if wrong or any(part == ".." or ("**" in part and part != "**") for part in path.parts):
        raise recipe_error(where, f"{glob!r} must be a relative path or glob, without ..")
