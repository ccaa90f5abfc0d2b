"""Benchmarks of a project: runs of its built programs, whose executed instructions are counted.

A run must execute the same instructions each time: one thread, no loop that ends by the clock, no hash that is seeded
from addresses or the time. Its input is generated from the recipe, so that nothing has to be downloaded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from components.core.projects.recipe_document import BenchmarkDocument, InputDocument, recipe_error
from components.platform.errors import UserError

_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


@dataclass(frozen=True)
class Input:
    """Content of an input file; exactly one of `text`, `files` and `output_of` is not empty.

    Attributes:
        files: globs of files in the source tree. Their contents, in the order of their paths, are repeated or cut to
            `size_bytes`.
        output_of: name of an earlier benchmark; its {output} is the input.
    """

    text: str = ""
    files: tuple[str, ...] = ()
    size_bytes: int = 0
    output_of: str = ""


@dataclass(frozen=True)
class Benchmark:
    """One run of one program.

    Attributes:
        program: glob of the program, relative to the build directory.
        arguments: with the placeholders {input}, {output} (a file that the program writes) and {source} (the source
            tree).
        stdin: whether the program reads its input from standard input.
    """

    name: str
    program: str
    arguments: tuple[str, ...] = ()
    input: Input | None = None
    stdin: bool = False

    @property
    def writes_output(self) -> bool:
        return any("{output}" in argument for argument in self.arguments)


def make_benchmarks(documents: Sequence[BenchmarkDocument], where: str) -> tuple[Benchmark, ...]:
    """Return the benchmarks of a recipe. UserError if names, globs, placeholders or inputs are wrong.

    Args:
        where: the recipe and project, for errors.
    """
    benchmarks: dict[str, Benchmark] = {}
    for document in documents:
        section, name = f"{where}: benchmarks", document.name
        if not _NAME.fullmatch(name):
            raise recipe_error(
                section, f"name {name!r} must be letters, digits and ._+-, and begin with a letter or digit"
            )
        if name in benchmarks:
            raise recipe_error(section, f"two benchmarks are named {name!r}")
        benchmarks[name] = _benchmark(document, benchmarks, f"{section}: {name}")
    return tuple(benchmarks.values())


def make_input(definition: Input, source_dir: Path, output: Path) -> None:
    """Write the input file of a benchmark to `output`, unless it is the output of another benchmark.

    Raises:
        UserError: no file of the source matches, or all matching files are empty.
    """
    if not definition.files:
        output.write_text(definition.text, encoding="utf-8")
        return
    matches = {path for glob in definition.files for path in source_dir.glob(glob) if path.is_file()}
    content = bytearray()
    for path in sorted(matches, key=lambda path: path.relative_to(source_dir).as_posix()):
        content += path.read_bytes()
        if len(content) >= definition.size_bytes:
            break
    if not content:
        raise UserError(
            f"no input for a benchmark: {', '.join(definition.files)} match no content in {source_dir}",
            "correct files in the benchmark's input",
        )
    repeated = content * -(-definition.size_bytes // len(content))
    output.write_bytes(repeated[: definition.size_bytes])


def _benchmark(document: BenchmarkDocument, earlier: Mapping[str, Benchmark], where: str) -> Benchmark:
    _require_glob(document.program, f"{where}: program")
    placeholders = {name for argument in document.arguments for name in _PLACEHOLDER.findall(argument)}
    for name in sorted(placeholders - {"input", "output", "source"}):
        raise recipe_error(
            where, f"unknown placeholder {{{name}}}", "the placeholders are {input}, {output} and {source}"
        )
    content = _input(document.input, earlier, f"{where}: input") if document.input else None
    if (content is not None) != (document.stdin or "input" in placeholders):
        problem = "input is missing" if content is None else "its input is not used"
        raise recipe_error(where, problem, "give an input, and pass it as {input} in arguments or by stdin: true")
    return Benchmark(document.name, document.program, document.arguments, content, document.stdin)


def _input(document: InputDocument, earlier: Mapping[str, Benchmark], where: str) -> Input:
    keys = {key for key in ("text", "files", "bytes", "output_of") if getattr(document, key) is not None}
    if keys not in ({"text"}, {"output_of"}, {"files", "bytes"}):
        raise recipe_error(where, "an input is exactly one of text, files with bytes, and output_of")
    if document.text is not None:
        return Input(text=document.text)
    if document.output_of is not None:
        name = document.output_of
        if name not in earlier or not earlier[name].writes_output:
            raise recipe_error(where, f"no benchmark {name!r} stands before this one and writes {{output}}")
        return Input(output_of=name)
    assert document.files is not None and document.bytes is not None
    if not document.files:
        raise recipe_error(where, "files is empty")
    for glob in document.files:
        _require_glob(glob, f"{where}: files")
    return Input(files=document.files, size_bytes=document.bytes)


def _require_glob(glob: str, where: str) -> None:
    """Refuse globs that `Path.glob` does not support, and those that lead out of the directory."""
    path = PurePosixPath(glob)
    wrong = not path.parts or path.is_absolute()
    if wrong or any(part == ".." or ("**" in part and part != "**") for part in path.parts):
        raise recipe_error(where, f"{glob!r} must be a relative path or glob, without ..")
