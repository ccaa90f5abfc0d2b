"""An untrusted manifest makes a reader write below the artifact's directory only, or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from components.platform.errors import UserError
from components.platform.storage import publish, read_manifest
from components.platform.storage.manifest import Manifest, NotAManifest, first_escaping_link, scan_directory
from components.platform.storage.object_storage.confined_files import create_file_below, create_link
from components.platform.storage.object_storage.fetch import fetch
from components.platform.storage.object_storage.remote import read_remote_manifest
from components.platform.storage.object_storage.stores import store_of
from components.platform.storage.uri import ObjectUri, mirror
from tests.support.buckets import names, put_object

EMPTY = {"bytes": 0, "crc32c": "AAAAAA=="}
DATA = "data/0123456789ab-01234567"


def file(name: Any, **other: Any) -> dict[str, Any]:
    return {"name": name, **EMPTY, **other}


HOSTILE = {
    "a link and a file of one name": [{"name": "a", "link": "/etc/passwd"}, file("a")],
    "two files of one name": [file("a"), file("a")],
    "a file below a link": [{"name": "a", "link": "/tmp"}, file("a/b")],
    "a file below a file": [file("a"), file("a/b")],
    "a link over a directory": [file("a/b/c"), {"name": "a/b", "link": "x"}],
    "an absolute link": [{"name": "a", "link": "/etc/passwd"}],
    "a link that leaves": [{"name": "d/a", "link": "../../x"}],
    "a link that leaves and comes back": [{"name": "a", "link": "../artifact/x"}],
    "a link that leaves by another": [{"name": "d/a", "link": "."}, {"name": "b", "link": "d/a/../../x"}],
    "a link to nothing": [{"name": "a", "link": ""}],
    "a link with NUL": [{"name": "a", "link": "x\0y"}],
    "a link that is a number": [{"name": "a", "link": 7}],
    "a name that leads out": [file("../../a")],
    "an absolute name": [file("/tmp/a")],
    "a name with NUL": [file("a\0b")],
    "a name that is a number": [file(7)],
    "a name that is a list": [file(["a"])],
    "an empty name": [file("")],
    "a name that is a directory": [file("a/")],
    "a name that is no text": [file("a\ud800")],
    "the manifest itself": [file("manifest.json")],
    "a size below nothing": [file("a", bytes=-1)],
    "a size that is text": [file("a", bytes="0")],
    "a size beyond any file": [file("a", bytes=10**30)],
    "a checksum that is a number": [file("a", crc32c=0)],
    "an entry that is a text": ["a"],
    "files that are a number": 7,
}


def pack(**other: Any) -> list[dict[str, Any]]:
    return [{"name": "@packs/0000.tar", "bytes": 0, "crc32c": "AAAAAA==", "offsets": {"a": 0}, **other}]


OTHERS: dict[str, dict[str, Any]] = {
    "no folder": {"data": None},
    "a folder elsewhere": {"data": "../other"},
    "a folder of others": {"data": "checkpoints"},
    "a pack elsewhere": {"packs": pack(name="../../x")},
    "a pack of no file": {"packs": pack(offsets={"b": 0})},
    "an offset below nothing": {"packs": pack(offsets={"a": -1})},
    "an offset that is text": {"packs": pack(offsets={"a": "0"})},
    "a file in two packs": {"packs": [*pack(), *pack(name="@packs/0001.tar")]},
    "two packs of the same name": {"packs": [*pack(), *pack(offsets={})]},
    "packs that are a number": {"packs": 7},
}


def put_manifest(gs_uri: ObjectUri, content: str | dict[str, Any]) -> None:
    text = content if isinstance(content, str) else json.dumps(content)
    put_object(gs_uri, "manifest.json", text)


def all_files(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if not path.is_dir() or path.is_symlink()}


@pytest.mark.parametrize("case", [*HOSTILE, *OTHERS])
def test_hostile_manifest_is_refused_before_any_file_is_written(gs_uri: ObjectUri, tmp_path: Path, case: str) -> None:
    document = {"version": 1, "files": HOSTILE.get(case, [file("a")]), "data": DATA, **OTHERS.get(case, {})}
    put_manifest(gs_uri, document)
    with pytest.raises(NotAManifest) as raised:
        fetch(gs_uri)
    assert str(gs_uri) in raised.value.problem and "artifact" in raised.value.remedy
    assert all_files(tmp_path) == set()
    with publish(mirror(gs_uri), "trace") as directory:  # and it does not block writers
        (directory / "a").write_text("sound")
    assert (fetch(gs_uri) / "a").read_text() == "sound"


@pytest.mark.parametrize(
    "case", [name for name in HOSTILE if "link that leaves" not in name and "absolute link" not in name]
)
def test_hostile_local_manifest_is_refused(tmp_path: Path, case: str) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"version": 1, "files": HOSTILE[case]}))
    with pytest.raises(NotAManifest, match=r"manifest\.json"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("text", ["", "{", '{"version": 1, "files": [{"na', '{"version": 1}'])
def test_truncated_manifest_is_an_error_for_readers_and_replaced_by_writers(
    gs_uri: ObjectUri, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    put_manifest(gs_uri, text)
    with pytest.raises(NotAManifest, match=f"{gs_uri}/manifest.json") as raised:
        fetch(gs_uri)
    assert "directory" not in raised.value.remedy
    with publish(mirror(gs_uri), "trace") as directory:
        (directory / "a").write_text("sound")
    assert f"{gs_uri}/manifest.json" in capsys.readouterr().out
    assert (fetch(gs_uri) / "a").read_text() == "sound"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[]", "another tool wrote it"),
        pytest.param("[" * 100_000, "another tool wrote it", id="deep"),
        ("\xff\0", "another tool wrote it"),
        ('{"version": 1, "name": "a web page"}', "another tool wrote it"),
        ('{"version": "1.0"}', "another tool"),
        ('{"version": 2, "files": []}', "version 2"),
    ],
)
def test_manifest_of_another_tool_or_newer_version_is_not_replaced(gs_uri: ObjectUri, text: str, expected: str) -> None:
    put_manifest(gs_uri, text)
    with pytest.raises(UserError, match=expected), publish(mirror(gs_uri), "trace"):
        pytest.fail("the block must not run")
    assert store_of(gs_uri).read(gs_uri / "manifest.json")[0] == text.encode()


@pytest.mark.parametrize("link", ["/etc/passwd", "../x", "d/../../x"])
def test_link_out_of_the_artifact_is_not_published(gs_uri: ObjectUri, link: str) -> None:
    with pytest.raises(UserError, match=str(link)), publish(mirror(gs_uri), "trace") as d:
        (d / "a").symlink_to(link)
    assert not read_remote_manifest(gs_uri).version and not mirror(gs_uri).exists()


@pytest.mark.parametrize("name", ["a\nb", "a\x1bb", "a\udcffb"])
def test_file_with_an_invalid_object_name_is_not_published(gs_uri: ObjectUri, name: str) -> None:
    with pytest.raises(UserError, match=str(gs_uri)), publish(mirror(gs_uri), "trace") as directory:
        (directory / name).touch()
    assert names(gs_uri) == []


def test_links_inside_the_artifact_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "d" / "e").mkdir(parents=True)
    (tmp_path / "d" / "up").symlink_to("../f")
    (tmp_path / "d" / "e" / "root").symlink_to("../..")
    (tmp_path / "by").symlink_to("d/e/root/f")
    (tmp_path / "f").touch()
    assert first_escaping_link(Manifest(tmp_path, scan_directory(tmp_path)).files) is None


def test_files_are_created_only_below_the_directory(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / "link").symlink_to(outside)
    (root / "file-link").symlink_to(outside / "file")
    for name in ("link/a", "file-link"):
        with pytest.raises(OSError):
            create_file_below(root, name)
        with pytest.raises(OSError):
            create_link(root, name, "x")
    for name in ("../a", "/a", "a//b", ""):
        with pytest.raises(ValueError):
            create_file_below(root, name)
    with create_file_below(root, "deep/er/a", executable=True) as stream:
        stream.write(b"x")
    with pytest.raises(FileExistsError):
        create_file_below(root, "deep/er/a")
    assert os.access(root / "deep" / "er" / "a", os.X_OK) and list(outside.iterdir()) == []
