"""Objects in linkers' arguments, for arbitrary arguments, and refused inputs."""

from __future__ import annotations

import json
import re
import string
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlgo.corpus import extract_ir_lib

from components.core.projects.response_files import split_response_file
from components.corpus.sources.link import read_aquery, read_params, select_objects
from components.platform.errors import UserError

ARGUMENT = st.one_of(
    st.sampled_from(["-o", "a.o", "./a.o", "b/c.o", "-lm.o", "--start-lib", "lib.a", "prog", "-o.o", "-oprog", ".o"]),
    st.text(string.ascii_letters + "-./ @", max_size=12),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["actions", "mnemonic", "arguments", "x"]), inner, max_size=4)
    ),
    max_leaves=12,
)


def expected(theirs: list[Any], arguments: list[str]) -> list[str]:
    """Return the objects that mlgo-utils should find in `arguments`, of those that it found.

    It takes all items of a list without -o and later drops those that are empty or start with a dash; and it knows no
    other spelling of -o.
    """
    names = [item.relative_output_path() for item in theirs]
    whole = any(argument.startswith("-o") for argument in arguments)
    return [name for name in names if name and not name.startswith("-") and (name.endswith(".o") or not whole)]


def ours(arguments: list[str]) -> list[str]:
    """Return the objects that we find; mlgo-utils leaves out the archives of a whole command line."""
    whole = any(argument.startswith("-o") for argument in arguments)
    return [name for name in select_objects(arguments)[0] if not (whole and name.endswith(".a"))]


@given(st.lists(ARGUMENT, max_size=12).filter(lambda arguments: arguments.count("-o") < 2))
def test_objects_equal_those_of_mlgo_utils(arguments: list[str]) -> None:
    assert ours(arguments) == expected(extract_ir_lib.load_from_lld_params(list(arguments), "", ""), arguments)


@given(content=st.binary(max_size=200) | st.text(max_size=80).map(lambda text: text.encode("utf-8", "replace")))
def test_arbitrary_params_file_is_read_or_refused(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "any.params"
    path.write_bytes(content)
    try:
        objects, _ = read_params(path)
    except UserError as error:
        assert error.remedy
    else:
        assert all(not item.name.startswith(("/", "../")) for item in objects)


@given(document=JSON | st.fixed_dictionaries({"actions": st.lists(JSON, max_size=3)}))
def test_arbitrary_json_as_aquery_is_refused(document: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_text(json.dumps(document))
    with pytest.raises(UserError) as caught:  # random documents never have a CppLink action
        read_aquery(path)
    assert caught.value.remedy


@given(st.lists(st.lists(ARGUMENT, max_size=8), min_size=1, max_size=4))
def test_aquery_uses_the_last_link(links: list[list[str]]) -> None:
    document = {"actions": [{"mnemonic": "CppLink", "arguments": list(link)} for link in links]}
    if links[-1].count("-o") < 2:
        assert ours(links[-1]) == expected(extract_ir_lib.load_bazel_aquery(document, "", ""), links[-1])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "names no object in its 0 arguments"),
        ("-o\nprogram\n-lm\n", "names no object in its 3 arguments"),
        ("-o\nprogram\n'a.o\n", "ends inside of ' quotes"),
        ("-o\nprogram\na.o\n@more\n", "names the response file more"),
        ("-o\nprogram\na.o\n@p\n", "in a cycle"),
        ("-o\nprogram\na\0b.o\n", "is not a path"),
    ],
)
def test_invalid_params_file_is_refused(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "p").write_text(text)
    with pytest.raises(UserError, match=words) as caught:
        read_params(tmp_path / "p", tmp_path)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("text", "words", "remedy"),
    [
        ("", "not valid JSON", "bazel aquery"),
        ("[" * 100_000, "nested more than", "bazel aquery"),
        ("[]", 'no list of "actions"', "bazel aquery"),
        ('{"actions": [3]}', 'no list of "actions"', "bazel aquery"),
        ('{"actions": [{"mnemonic": "CppCompile"}]}', "no CppLink action", "cc_binary"),
        ('{"actions": [{"mnemonic": "CppLink"}]}', "no list of arguments", "bazel aquery"),
        (
            '{"actions": [{"mnemonic": "CppLink", "arguments": ["-o", "a"], "paramFiles": [{"execPath": 1}]}]}',
            "no list of parameter files",
            "--include_param_files",
        ),
        ('{"actions": [{"mnemonic": "CppLink", "arguments": ["clang", "-o", "p"]}]}', "names no object", "cc_binary"),
        (
            '{"actions": [{"mnemonic": "CppLink", "arguments": ["clang", "-o", "p", "@out/p-2.params"]}]}',
            "names the response file out/p-2.params",
            "--obj-base-dir",
        ),
        (
            r'{"actions": [{"mnemonic": "CppLink", "arguments": ["-o", "p", "\ud800.o"]}]}',
            "is not a path",
            "regenerate",
        ),
        (r'{"actions": [{"mnemonic": "CppLink", "arguments": ["-o", "p", "gr\udcfc.o"]}]}', "is not UTF-8", "rename"),
    ],
)
def test_invalid_aquery_is_refused(text: str, words: str, remedy: str, tmp_path: Path) -> None:
    (tmp_path / "q.json").write_text(text)
    with pytest.raises(UserError, match=words) as caught:
        read_aquery(tmp_path / "q.json")
    assert remedy in caught.value.remedy


@pytest.mark.parametrize("named", [[], ["@out/app-0.params"]])
def test_objects_in_parameter_files_of_new_bazel_are_found(named: list[str], tmp_path: Path) -> None:
    """Bazel 7.2 and later; older ones name the file on the command line."""
    files = [{"execPath": "out/app-0.params", "arguments": ["m1.o", "m2.o"]}, {"execPath": "out/empty.params"}]
    action = {"mnemonic": "CppLink", "arguments": ["gcc", "-o", "out/app", *named, "main.o"], "paramFiles": files}
    for name in ("m1.o", "m2.o", "main.o"):
        (tmp_path / name).write_text("")
    (tmp_path / "q.json").write_text(json.dumps({"actions": [action]}))
    objects, _ = read_aquery(tmp_path / "q.json", tmp_path)
    assert {Path(file.path).name for file in objects} == {"m1.o", "m2.o", "main.o"}


@pytest.mark.parametrize("read", [read_params, read_aquery])
def test_missing_file_and_directory_are_refused(read: Any, tmp_path: Path) -> None:
    for path, words in ((tmp_path / "gone", "no such file"), (tmp_path, "is a directory")):
        with pytest.raises(UserError, match=words):
            read(path)


def test_object_that_is_linked_twice_is_one_module(tmp_path: Path) -> None:
    (tmp_path / "p").write_text(f"-o\np\na.o\n./a.o\n{tmp_path}/a.o\n")
    objects, outside = read_params(tmp_path / "p", tmp_path)
    assert [(item.name, item.path) for item in objects] == [("a.o", f"{tmp_path}/a.o")] and not outside


WORD = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8)


@given(st.lists(WORD, max_size=8), st.sampled_from([" ", "\n", "\r\n", " \t\n"]), st.booleans())
def test_quoted_and_escaped_arguments_are_read(words: list[str], separator: str, escape: bool) -> None:
    def quote(word: str) -> str:
        if escape:
            return "".join(f"\\{character}" for character in word)
        return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'

    text = separator.join(map(quote, words))
    assert split_response_file(text.encode(), Path("p")) == words
    assert split_response_file(text.encode("utf-16"), Path("p")) == words


@settings(max_examples=30)
@given(st.text("ab \t\r\n'\"\\\v", max_size=12))
def test_response_file_is_split_as_by_lld(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """lld names each argument that is not a file; here none is."""
    path = tmp_path_factory.getbasetemp() / "rsp"
    path.write_bytes(text.encode())
    try:
        arguments = split_response_file(path.read_bytes(), path)
    except UserError:
        return  # lld closes the quote at the end of the file
    command = ["ld.lld-19", "--error-limit=0", f"@{path.name}"]
    done = subprocess.run(command, capture_output=True, cwd=path.parent)
    names = re.findall(
        rb"ld\.lld-19: error: cannot open (.*?): (?:No such file|Is a directory)", done.stderr, re.DOTALL
    )
    assert [name.decode() for name in names] == [a for a in arguments if a]


def test_all_objects_of_any_spelling_are_found(tmp_path: Path) -> None:
    """Quoted lines, several arguments on a line, response files in response files, archives, other outputs."""
    (tmp_path / "more.rsp").write_text("e.o 'dir f/f.o' @last.rsp")
    (tmp_path / "last.rsp").write_bytes(b'\xef\xbb\xbf"g.o"\r\n')
    lines = ['"a.o" b.o', "'c d.o'\r", "d\\ d.o", "-oprog", "@more.rsp", "libx.a", "old.lo", "/elsewhere/y.o"]
    (tmp_path / "p").write_text("\n".join(lines))
    objects, left = read_params(tmp_path / "p", tmp_path)
    names = ["a.o", "b.o", "c d.o", "d d.o", "e.o", "dir f/f.o", "g.o", "libx.a"]
    assert [item.name for item in objects] == names
    assert {(name, kind) for name, kind, _ in left} == {("/elsewhere/y.o", "outside"), ("old.lo", "not_an_object")}
