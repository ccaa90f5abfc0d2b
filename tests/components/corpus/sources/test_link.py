"""Objects in linkers' arguments, for arbitrary arguments, and refused inputs."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlgo.corpus import extract_ir_lib

from components.core.console import UserError
from components.corpus.sources.link import from_aquery, from_params, objects_of

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


@given(st.lists(ARGUMENT, max_size=12))
def test_objects_equal_those_of_mlgo_utils(arguments: list[str]) -> None:
    """mlgo-utils takes all items of a list without -o; it later drops those that are empty or start with a dash."""
    theirs = [item.relative_output_path() for item in extract_ir_lib.load_from_lld_params(list(arguments), "", "")]
    if "-o" not in arguments:
        theirs = [name for name in theirs if name and not name.startswith("-")]
    assert objects_of(arguments) == theirs


@given(content=st.binary(max_size=200) | st.text(max_size=80).map(lambda text: text.encode("utf-8", "replace")))
def test_arbitrary_params_file_is_read_or_refused(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "any.params"
    path.write_bytes(content)
    try:
        objects, _ = from_params(path)
    except UserError as error:
        assert error.remedy
    else:
        assert all(not item.name.startswith(("/", "../")) for item in objects)


@given(document=JSON | st.fixed_dictionaries({"actions": st.lists(JSON, max_size=3)}))
def test_arbitrary_json_as_aquery_is_refused(document: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_text(json.dumps(document))
    with pytest.raises(UserError) as caught:  # random documents never have a CppLink action
        from_aquery(path)
    assert caught.value.remedy


@given(st.lists(st.lists(ARGUMENT, max_size=8), min_size=1, max_size=4))
def test_aquery_uses_the_last_link(links: list[list[str]]) -> None:
    document = {"actions": [{"mnemonic": "CppLink", "arguments": list(link)} for link in links]}
    theirs = extract_ir_lib.load_bazel_aquery(document, "", "")
    ours = objects_of(links[-1])
    assert ours == [
        i.relative_output_path()
        for i in theirs
        if not i.relative_output_path().startswith("-") and i.relative_output_path()
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "names no object in its 0 lines"),
        ("-o\nprogram\nlib.a\n", "names no object in its 3 lines"),
        ("-o\nprogram\na\0b.o\n", "is not a path"),
    ],
)
def test_invalid_params_file_is_refused(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "p").write_text(text)
    with pytest.raises(UserError, match=words) as caught:
        from_params(tmp_path / "p")
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
        ('{"actions": [{"mnemonic": "CppLink", "arguments": ["clang", "-o", "p"]}]}', "names no object", "cc_binary"),
        (
            '{"actions": [{"mnemonic": "CppLink", "arguments": ["clang", "-o", "p", "@out/p-2.params"]}]}',
            "names no object",
            "--input-type params --input out/p-2.params",
        ),
        (
            r'{"actions": [{"mnemonic": "CppLink", "arguments": ["-o", "p", "\ud800.o"]}]}',
            "is not a path",
            "regenerate",
        ),
        (
            r'{"actions": [{"mnemonic": "CppLink", "arguments": ["-o", "p", "gr\udcfc.o"]}]}',
            "is not UTF-8",
            "rename",
        ),
    ],
)
def test_invalid_aquery_is_refused(text: str, words: str, remedy: str, tmp_path: Path) -> None:
    (tmp_path / "q.json").write_text(text)
    with pytest.raises(UserError, match=words) as caught:
        from_aquery(tmp_path / "q.json")
    assert remedy in caught.value.remedy


@pytest.mark.parametrize("read", [from_params, from_aquery])
def test_missing_file_and_directory_are_refused(read: Any, tmp_path: Path) -> None:
    for path, words in ((tmp_path / "gone", "no such file"), (tmp_path, "is a directory")):
        with pytest.raises(UserError, match=words):
            read(path)


def test_object_that_is_linked_twice_is_one_module(tmp_path: Path) -> None:
    (tmp_path / "p").write_text(f"-o\np\na.o\n./a.o\n{tmp_path}/a.o\n")
    objects, outside = from_params(tmp_path / "p", tmp_path)
    assert [(item.name, item.path) for item in objects] == [("a.o", f"{tmp_path}/a.o")] and not outside
