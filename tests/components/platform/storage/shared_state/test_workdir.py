"""Single files of a working directory, local and in a bucket."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.platform.errors import UserError
from components.platform.storage import publish
from components.platform.storage.object_storage.fetch import fetch_files_outside_artifacts
from components.platform.storage.shared_state.workdir import list_files, pull_file, push_file, remove_file
from components.platform.storage.uri import ObjectUri, mirror
from tests.support.buckets import put_object


@pytest.fixture(params=["path", "gs", "s3"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    work_directory = (
        tmp_path / "work" if request.param == "path" else mirror(request.getfixturevalue(f"{request.param}_uri"))
    )
    (work_directory / "a").mkdir(parents=True)
    return work_directory


def test_files_are_pushed_pulled_and_dropped(directory: Path) -> None:
    assert list_files(directory) == {}
    for text in ("x", "xyz"):
        (directory / "a" / "b").write_text(text)
        push_file(directory / "a" / "b")
    assert list_files(directory) == {"a/b": 3}
    pull_file(directory / "a" / "b")
    assert (directory / "a" / "b").read_text() == "xyz"
    remove_file(directory / "a" / "b")
    remove_file(directory / "a" / "b")
    assert list_files(directory) == {} and not (directory / "a" / "b").exists()


def test_file_is_pulled_on_another_machine(any_uri: ObjectUri, cache: Path) -> None:
    path = mirror(any_uri) / "a"
    path.parent.mkdir(parents=True)
    path.write_text("x")
    push_file(path)
    cache.rename(cache.with_name("another machine's"))
    pull_file(mirror(any_uri) / "a")
    assert path.read_text() == "x"
    with pytest.raises(UserError, match="nowhere"):
        pull_file(mirror(any_uri) / "nowhere")


def test_files_outside_of_artifacts_are_fetched_without_touching_the_mirror(any_uri: ObjectUri) -> None:
    with publish(mirror(any_uri) / "checkpoints" / "1", "checkpoint") as directory:
        (directory / "state").write_text("large")
    for name in ("tensorboard/events", "latest.json"):
        put_object(any_uri, name, name)
    (mirror(any_uri) / "tensorboard").mkdir()
    (mirror(any_uri) / "tensorboard" / "events").write_text("and what is not uploaded yet")
    for _again in range(2):
        fetched = fetch_files_outside_artifacts(any_uri)
        assert {p.relative_to(fetched).as_posix() for p in fetched.rglob("*") if p.is_file()} == {
            "tensorboard/events",
            "latest.json",
        }
    assert (mirror(any_uri) / "tensorboard" / "events").read_text() == "and what is not uploaded yet"
