"""YAML that would take hours or gigabytes is refused at once; what people write with anchors is not."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from components.platform.errors import UserError
from components.platform.storage.input_files import MAX_ALIAS_VALUES, parse_yaml
from pipelines.spec import load_spec
from pipelines.submit.overrides_document import read_overrides

NINE = "a: &l0 {" + ", ".join(f"k{number}: {number}" for number in range(9)) + "}\n"


def nest(levels: int, line: str) -> str:
    """Return a document in which each line has nine aliases of the line before."""
    return NINE + "".join(
        line.format(level=level, nine=", ".join([f"*l{level - 1}"] * 9)) for level in range(1, levels + 1)
    )


MERGED = "m{level}: &l{level} {{<<: [{nine}]}}\n"
BOMBS = {
    "merge keys": nest(9, MERGED),
    "merge keys of their own merge keys": nest(9, "m{level}: &l{level} {{<<: [{nine}], k: [{nine}]}}\n"),
    "lists": nest(9, "m{level}: &l{level} [{nine}]\n"),
    "keys": nest(9, "? m{level}\n: &l{level}\n  - {{<<: [{nine}]}}\n"),
    "many documents": "---\n".join(nest(3, MERGED) for _ in range(300)),
    "one mapping merged a thousand times": (
        "a: &a {"
        + ", ".join(f"k{i}: 1" for i in range(1000))
        + "}\n"
        + "".join(f"b{i}: {{<<: *a}}\n" for i in range(999))
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_aliases_and_merge_keys_that_multiply_are_refused_at_once(name: str) -> None:
    began_s = time.monotonic()
    with pytest.raises(UserError, match=f"{MAX_ALIAS_VALUES}"):
        parse_yaml(BOMBS[name], "f.yaml", "correct it")
    assert time.monotonic() - began_s < 10


def test_aliases_and_merge_keys_that_people_write_are_read() -> None:
    text = "base: &base {cpu: 1, memory: 2G}\nppo: {<<: *base, cpu: 4}\nboth: {<<: [*base, {disk: 3}]}\nlist: [*base]\n"
    (document,) = parse_yaml(text, "f.yaml", "")
    assert document["ppo"] == {"cpu": 4, "memory": "2G"} and document["both"] == {"cpu": 1, "memory": "2G", "disk": 3}
    assert document["list"] == [{"cpu": 1, "memory": "2G"}]
    many = "a: &a [x]\n" + "\n".join(f"b{number}: *a" for number in range(20_000))
    assert len(parse_yaml(many, "f.yaml", "")[0]) == 20_001
    assert len(parse_yaml("[" + "1," * (MAX_ALIAS_VALUES // 8) + "1]", "f.yaml", "")[0]) == MAX_ALIAS_VALUES // 8 + 1


@pytest.mark.parametrize("text", ["&a [*a]", "&a {<<: *a}", "&a {<<: [*a, *a]}", "a: &a {b: {<<: *a}}", "&a {*a : 1}"])
def test_document_that_contains_itself_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"f\.yaml is (nested more than|not valid YAML)"):
        parse_yaml(text, "f.yaml", "correct it")


@pytest.mark.parametrize(
    "text", ["1" + ":1" * 200_000, "0x" + "f" * 5000, "9" * 2000, "!!int '" + "1:" * 100_000 + "1'"]
)
def test_huge_integers_are_refused_at_once(text: str) -> None:
    """Base 60 takes quadratic time; more digits than Python prints end an error's message in a traceback."""
    began_s = time.monotonic()
    with pytest.raises(UserError, match="1000 digits"):
        parse_yaml(f"seed: {text}\n", "f.yaml", "correct it")
    assert time.monotonic() - began_s < 10


def test_every_reader_of_yaml_refuses_merge_keys_that_multiply(tmp_path: Path) -> None:
    path = tmp_path / "bomb.yaml"
    path.write_text(BOMBS["merge keys"])
    for read in (load_spec, read_overrides):
        with pytest.raises(UserError, match="aliases"):
            read(path)
    command = [sys.executable, "-m", "components.corpus", "build", "--recipe", str(path)]
    command += ["--output", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and re.match(r"error: .*bomb\.yaml has aliases that expand", done.stderr), done.stderr


def test_yaml_is_parsed_in_one_place() -> None:
    root = Path(__file__).parents[4]
    loaders = re.compile(r"\byaml\.(safe_|full_|unsafe_)?load(_all)?\(|\byaml\.compose|SafeLoader")
    files = [path for folder in ("components", "pipelines") for path in (root / folder).rglob("*.py")]
    parsers = {path.name for path in files if loaders.search(path.read_text())}
    assert parsers == {"input_files.py", "inline_remarks.py"}, (
        "the latter reads what our clang writes, not a user's file"
    )
