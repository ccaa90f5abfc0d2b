"""Benchmarks of a project: runs of programs that its build makes, whose instructions are counted.

A run must execute the same instructions each time: one thread, no loop that ends by the clock, no hash that is seeded
from addresses or the time. Its input is made of what the recipe says, so that nothing has to be downloaded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from components.core.console import UserError
from components.core.projects.typed_mapping import TypedMapping

MAX_INPUT_BYTES = 1 << 30
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


@dataclass(frozen=True)
class Input:
    """What an input file consists of; exactly one of `text`, `files` and `output_of` is not empty.

    files: globs of files in the source tree. Their contents, in the order of their paths, are repeated or cut to
        `size_bytes`.
    output_of: the name of an earlier benchmark, whose {output} it is.
    """

    text: str = ""
    files: tuple[str, ...] = ()
    size_bytes: int = 0
    output_of: str = ""


@dataclass(frozen=True)
class Benchmark:
    """One run of one program.

    program: glob of the program, relative to the build directory. arguments: with the placeholders {input}, {output}
    (a file that the program writes) and {source} (the source tree). stdin: whether the program reads its input from
    there.
    """

    name: str
    program: str
    arguments: tuple[str, ...] = ()
    input: Input | None = None
    stdin: bool = False

    @property
    def writes_output(self) -> bool:
        return any("{output}" in argument for argument in self.arguments)


def parse_benchmarks(top: TypedMapping) -> tuple[Benchmark, ...]:
    """The list below the key `benchmarks`, empty if there is none. `UserError` names what is wrong with it."""
    found: dict[str, Benchmark] = {}
    for item in top.items("benchmarks"):
        entry = TypedMapping(item, f"{top.where}: benchmarks")
        name = entry.string("name")
        if not _NAME.fullmatch(name):
            raise entry.error(f"name {name!r} must be letters, digits and ._+-, and begin with a letter or digit")
        if name in found:
            raise entry.error(f"two benchmarks are named {name!r}")
        found[name] = _benchmark(entry.named(name), found)
    return tuple(found.values())


def make_input(wanted: Input, source_dir: Path, place: Path) -> None:
    """Write the input file of a benchmark to `place`; what is the output of another, the caller has.

    Raises `UserError` if no file of the source matches, or all that match are empty.
    """
    if not wanted.files:
        place.write_text(wanted.text, encoding="utf-8")
        return
    found = {path for glob in wanted.files for path in source_dir.glob(glob) if path.is_file()}
    content = bytearray()
    for path in sorted(found, key=lambda path: path.relative_to(source_dir).as_posix()):
        content += path.read_bytes()
        if len(content) >= wanted.size_bytes:
            break
    if not content:
        raise UserError(
            f"no input for a benchmark: {', '.join(wanted.files)} match no content in {source_dir}",
            "correct files in the benchmark's input",
        )
    repeated = content * -(-wanted.size_bytes // len(content))
    place.write_bytes(repeated[: wanted.size_bytes])


def _benchmark(entry: TypedMapping, earlier: dict[str, Benchmark]) -> Benchmark:
    entry.only("name", "program", "arguments", "input", "stdin")
    program = entry.string("program")
    _check_glob(entry, "program", program)
    arguments = entry.strings("arguments")
    placeholders = {name for argument in arguments for name in _PLACEHOLDER.findall(argument)}
    for name in sorted(placeholders - {"input", "output", "source"}):
        raise entry.error(f"unknown placeholder {{{name}}}", "the placeholders are {input}, {output} and {source}")
    made = _input(entry.mapping("input"), earlier) if "input" in entry else None
    stdin = entry.truth("stdin", False)
    if (made is not None) != (stdin or "input" in placeholders):
        problem = "input is missing" if made is None else "its input is not used"
        raise entry.error(problem, "give an input, and pass it as {input} in arguments or by stdin: true")
    return Benchmark(entry.string("name"), program, arguments, made, stdin)


def _input(entry: TypedMapping, earlier: dict[str, Benchmark]) -> Input:
    kinds = [kind for kind in ("text", "files", "output_of") if kind in entry]
    if len(kinds) != 1:
        raise entry.error("an input needs exactly one of text, files and output_of")
    match kinds[0]:
        case "text":
            entry.only("text")
            return Input(text=entry.string("text"))
        case "output_of":
            entry.only("output_of")
            name = entry.string("output_of")
            if name not in earlier or not earlier[name].writes_output:
                raise entry.error(f"no benchmark {name!r} stands before this one and writes {{output}}")
            return Input(output_of=name)
        case _:
            entry.only("files", "bytes")
            files = entry.strings("files")
            if not files:
                raise entry.error("files is empty")
            for glob in files:
                _check_glob(entry, "files", glob)
            return Input(files=files, size_bytes=entry.integer("bytes", 1, MAX_INPUT_BYTES))


def _check_glob(entry: TypedMapping, key: str, glob: str) -> None:
    """Refuses what `Path.glob` cannot take, and what leads out of the directory."""
    path = PurePosixPath(glob)
    wrong = not path.parts or path.is_absolute() or "\0" in glob
    if wrong or any(part == ".." or ("**" in part and part != "**") for part in path.parts):
        raise entry.error(f"{key}: {glob!r} must be a relative path or glob, without ..")
