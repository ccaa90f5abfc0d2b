"""Inputs from object storage do not change while a process reads them, even if others publish and fetch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from components.platform.storage import digest, publish, verify
from components.platform.storage.directory import size_of
from components.platform.storage.object_storage import fetch as fetch_module
from components.platform.storage.object_storage.fetch import fetch, fetch_file, fetch_tree
from components.platform.storage.object_storage.stores import store_of
from components.platform.storage.shared_state import stale_directories
from components.platform.storage.shared_state.stale_directories import (
    create_locked,
    lock_shared,
    remove_stale,
    remove_unused,
)
from components.platform.storage.uri import ObjectUri, mirror, uri_of
from tests.support.buckets import put_object, remove_object


def publish_elsewhere(uri: ObjectUri, text: str, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """Publish as another machine does: with a separate cache."""
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("MLGO_CACHE_DIR", str(cache.with_name(f"cache-of-{text}")))
        with publish(mirror(uri), "trace") as directory:
            for name in ("a", "b"):
                (directory / name).write_text(text)


def fetch_in_another_process(uri: ObjectUri, cache: Path) -> str:
    """Return the content of the file a, fetched by another process of this machine that shares the cache."""
    code = (
        "import sys\n"
        "from components.platform.storage.object_storage.fetch import fetch\n"
        "from components.platform.storage.uri import parse_location\n"
        "print((fetch(parse_location(sys.argv[1])) / 'a').read_text())\n"
    )
    environment = os.environ | {"MLGO_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", code, str(uri)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=True)
    return done.stdout.splitlines()[-1]


def test_reader_keeps_its_version_while_another_process_fetches_a_newer_one(
    storage_uri: ObjectUri, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_elsewhere(storage_uri, "one", monkeypatch, cache)
    fetched = fetch(storage_uri)
    content = digest(fetched)
    publish_elsewhere(storage_uri, "two", monkeypatch, cache)
    assert fetch_in_another_process(storage_uri, cache) == "two"
    assert (fetched / "a").read_text() == "one" == (fetched / "b").read_text() and digest(fetched) == content
    assert uri_of(fetched / "a") == storage_uri / "a"


def become_another_process() -> None:
    """Release what this process reads, so that the next download is its first."""
    for descriptor in fetch_module._held.values():
        os.close(descriptor)
    fetch_module._held.clear()
    fetch_module._limited.clear()


def test_cache_is_limited_to_versions_that_were_used_last(
    storage_uri: ObjectUri, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uris = [storage_uri / name for name in ("0", "1", "2", "3")]
    for uri in uris:
        publish_elsewhere(uri, "x", monkeypatch, cache)
    mirrors = [fetch(uri).parent for uri in uris[:3]]
    output = mirror(storage_uri / "output")
    output.mkdir(parents=True)
    (output / "mine").write_text("x" * 200_000)
    for number, used_s in enumerate((3, 1, 2)):
        os.utime(mirrors[number], (used_s, used_s))
    become_another_process()
    monkeypatch.setenv("MLGO_CACHE_GB", str(2.5e-9 * size_of(mirrors[0])))  # two versions
    assert fetch(uris[2]).parent == mirrors[2], "used now, and no download"
    mirrors.append(fetch(uris[3]).parent)
    assert [path.is_dir() for path in mirrors] == [True, False, True, True]
    monkeypatch.setenv("MLGO_CACHE_GB", "1e-9")
    fetch_module._limited.clear()
    fetch(uris[1])
    assert [path.is_dir() for path in mirrors] == [False, True, True, True], "those in use stay"
    assert (output / "mine").is_file()


def test_versions_that_no_process_reads_are_removed(
    storage_uri: ObjectUri, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_elsewhere(storage_uri, "one", monkeypatch, cache)
    read_here = fetch(storage_uri)
    publish_elsewhere(storage_uri, "two", monkeypatch, cache)
    fetch_in_another_process(storage_uri, cache)
    publish_elsewhere(storage_uri, "three", monkeypatch, cache)
    latest = fetch(storage_uri)
    kept_mirrors = {path.name for path in read_here.parent.parent.iterdir()}
    assert kept_mirrors == {read_here.parent.name, latest.parent.name}
    assert [(path / "a").read_text() for path in (read_here, latest)] == ["one", "three"]


def test_artifact_published_here_is_hard_linked_and_not_downloaded(storage_uri: ObjectUri) -> None:
    with publish(mirror(storage_uri), "trace") as directory:
        (directory / "bin").mkdir()
        (directory / "bin" / "clang").write_text("elf")
        (directory / "bin" / "clang++").symlink_to("clang")
    fetched = fetch(storage_uri)
    verify(fetched)
    assert fetched != mirror(storage_uri)
    assert os.stat(fetched / "bin" / "clang").st_ino == os.stat(mirror(storage_uri) / "bin" / "clang").st_ino
    assert os.readlink(fetched / "bin" / "clang++") == "clang"


@pytest.mark.parametrize("published_here", [False, True])
def test_damaged_mirror_is_downloaded_again(
    storage_uri: ObjectUri, cache: Path, published_here: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damage that keeps the size, also where the mirror shares its files with this machine's own publication."""
    if published_here:
        with publish(mirror(storage_uri), "trace") as directory:
            (directory / "a").write_text("one")
    else:
        publish_elsewhere(storage_uri, "one", monkeypatch, cache)
    fetched = fetch(storage_uri)
    with open(fetched / "a", "r+") as stream:
        stream.write("0")
    assert fetch_in_another_process(storage_uri, cache) == "one"
    assert (fetched / "a").read_text() == "one"


def test_artifact_replaces_a_folder_without_a_manifest(
    storage_uri: ObjectUri, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_object(storage_uri, "a", "loose")
    tree = fetch_tree(storage_uri)
    publish_elsewhere(storage_uri, "one", monkeypatch, cache)
    assert (fetch(storage_uri) / "a").read_text() == "one"
    assert (tree / "a").read_text() == "loose"
    with publish(mirror(storage_uri), "trace") as directory:  # the cached folder does not block publication either
        (directory / "a").write_text("two")
    assert (fetch(storage_uri) / "a").read_text() == "two"


def test_artifact_is_read_after_its_manifest_was_deleted_and_restored(storage_uri: ObjectUri, cache: Path) -> None:
    with publish(mirror(storage_uri), "trace") as directory:
        (directory / "a").write_text("one")
    text, _version = store_of(storage_uri).read(storage_uri / "manifest.json")
    assert text
    remove_object(storage_uri, "manifest.json")
    assert not (fetch_tree(storage_uri) / "manifest.json").exists()
    put_object(storage_uri, "manifest.json", text)
    assert (fetch(storage_uri) / "a").read_text() == "one"


def test_unfinished_mirror_does_not_block_publication(storage_uri: ObjectUri) -> None:
    mirror(storage_uri).mkdir(parents=True)
    (mirror(storage_uri) / "of a folder").touch()
    with publish(mirror(storage_uri), "trace") as directory:
        (directory / "a").write_text("one")
    assert sorted(os.listdir(mirror(storage_uri))) == ["a", "manifest.json"]
    assert os.listdir(mirror(storage_uri).parent) == [mirror(storage_uri).name]


def test_fetched_file_does_not_change(storage_uri: ObjectUri) -> None:
    recipe = storage_uri / "demo.yaml"
    put_object(storage_uri, "demo.yaml", "one")
    fetched = fetch_file(recipe)
    assert fetch_file(recipe) == fetched
    put_object(storage_uri, "demo.yaml", "two")
    assert fetch_file(recipe).read_text() == "two"
    assert fetched.read_text() == "one" and fetched.name == "demo.yaml"


def test_folder_is_downloaded_again_only_if_it_changed(storage_uri: ObjectUri) -> None:
    put_object(storage_uri, "a", "one")
    tree = fetch_tree(storage_uri)
    assert fetch_tree(storage_uri) == tree
    put_object(storage_uri, "b", "two")
    assert sorted(path.name for path in fetch_tree(storage_uri).iterdir()) == ["a", "b"]
    assert [path.name for path in tree.iterdir()] == ["a"]


def test_folder_whose_objects_cannot_be_files_is_an_error(storage_uri: ObjectUri) -> None:
    for name in ("a", "a/b"):
        put_object(storage_uri, name, name)
    with pytest.raises(Exception, match="a/b lies"):
        fetch_tree(storage_uri)


def test_directory_removed_as_stale_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[Path] = []

    def hold_late(directory: Path) -> int | None:
        if not removed:  # another process publishes here at this moment
            remove_stale([directory])
            removed.append(directory)
        return lock_shared(directory)

    monkeypatch.setattr(stale_directories, "lock_shared", hold_late)
    made, descriptor = create_locked(tmp_path, ".trace.partial-", tmp_path)
    remove_stale([made])
    assert made.is_dir() and removed and not removed[0].exists()
    os.close(descriptor)


def test_locked_directory_is_not_removed(tmp_path: Path) -> None:
    directory = tmp_path / "d"
    directory.mkdir()
    descriptor = lock_shared(directory)
    assert descriptor is not None and not remove_unused(directory)
    os.close(descriptor)
    assert remove_unused(directory) and os.listdir(tmp_path) == [] and lock_shared(directory) is None
