"""Directories that Kubeflow Pipelines copies, as object storage."""

from __future__ import annotations

import os
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.platform.errors import UserError
from components.platform.storage import publish, read_manifest
from components.platform.storage.object_storage.fetch import fetch, fetch_file
from components.platform.storage.object_storage.kfp_local import KfpLocalStore, kfp_local_uri, local_directory
from components.platform.storage.object_storage.object_store import NO_VERSION, ObjectMissing, VersionConflict
from components.platform.storage.options import ARTIFACT, skip_fetch
from components.platform.storage.uri import ObjectUri, mirror, parse_location
from tests.components.platform.storage.test_uri import PATHS

URI = ObjectUri("kfp-local", "minio", "mlpipeline/v2/corpus")


@pytest.fixture
def root(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that stands for the pod's root directory."""
    monkeypatch.setenv("ARTIFACT_LOCAL_PATH", str(tmp_path / "pod"))
    return tmp_path / "pod"


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("minio://mlpipeline/v2/artifacts/a", "/minio/mlpipeline/v2/artifacts/a"),
        ("s3://bucket/a/b", "/s3/bucket/a/b"),
        ("oci://registry/models/m:v1", "/oci/registry_models_m:v1/models"),
    ],
)
def test_uri_becomes_the_path_that_kfp_uses(uri: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARTIFACT_LOCAL_PATH", raising=False)
    location = parse_location(kfp_local_uri(uri))
    assert isinstance(location, ObjectUri) and local_directory(location) == Path(path)


@pytest.mark.parametrize("uri", ["gs://bucket/a", "/runs/a", "corpus", "http://host/a", "file:///a"])
def test_places_that_kfp_does_not_copy_stay(uri: str) -> None:
    assert kfp_local_uri(uri) == uri


@given(PATHS, st.sampled_from(["minio", "s3"]))
def test_places_differ_if_uris_do_and_stay_below_the_schemes_directory(path: str, scheme: str) -> None:
    location = parse_location(kfp_local_uri(f"{scheme}://bucket/{path}"))
    assert isinstance(location, ObjectUri)
    assert str(local_directory(location)).endswith(f"/{scheme}/bucket/{path}")
    assert mirror(location).is_relative_to(mirror(ObjectUri("kfp-local", scheme, "bucket")).parents[1])


@pytest.mark.parametrize("uri", ["kfp-local://../a", "kfp-local://minio/../a", "kfp-local://minio"])
def test_place_outside_is_refused(uri: str) -> None:
    with pytest.raises(UserError):
        parse_location(uri)


def test_published_artifact_is_packed_without_links_and_fetched_unchanged(root: Path, cache: Path) -> None:
    with publish(mirror(URI), "trace") as directory:
        for number in range(100):
            (directory / f"{number}.bc").write_text(str(number))
        (directory / "tool").write_bytes(b"\x7fELF")
        (directory / "tool").chmod(0o755)
        (directory / "link").symlink_to("tool")
    made = read_manifest(mirror(URI)).files
    copied = [path for path in (root / "minio/mlpipeline/v2/corpus").rglob("*") if not path.is_dir()]
    assert sorted(path.name for path in copied) == ["0000.tar", "manifest.json"]
    assert not any(path.is_symlink() for path in copied)
    cache.rename(cache.with_name("another pod's"))
    back = fetch(URI)
    assert read_manifest(back).files == made and os.access(back / "tool", os.X_OK)
    assert os.readlink(back / "link") == "tool"


def test_damaged_copy_is_detected(root: Path, cache: Path) -> None:
    with publish(mirror(URI), "trace") as directory:
        (directory / "a").write_text("sound")
    (copy,) = (root / "minio/mlpipeline/v2/corpus/data").rglob("a")
    cache.rename(cache.with_name("another pod's"))
    copy.write_text("sOund")
    with pytest.raises(UserError, match="damaged"):
        fetch(URI)
    copy.unlink()
    with pytest.raises(UserError, match="/a is missing"):
        fetch(URI)


def test_versions_decide_who_writes_reads_and_deletes(root: Path, tmp_path: Path) -> None:
    store, uri = KfpLocalStore(), URI / "state.json"
    assert store.read(uri) == (None, NO_VERSION) and store.head(uri) is None and store.objects(URI) == []
    first = store.write(uri, b"1", NO_VERSION)
    second = store.write(uri, b"2", first.version)
    for stale in (NO_VERSION, first.version):
        with pytest.raises(VersionConflict):
            store.write(uri, b"3", stale)
    with pytest.raises(ObjectMissing):
        store.download_to(uri, tmp_path / "a", first.version)
    assert fetch_file(uri).read_text() == "2"
    store.delete(uri, first.version)
    assert [stored.version for stored in store.objects(URI)] == [second.version]
    store.delete(uri)
    store.delete(uri)
    assert store.objects(URI) == [] and list((root / "minio/mlpipeline/v2/corpus").iterdir()) == []


def test_unwritable_directory_is_an_error(root: Path) -> None:
    root.parent.joinpath("pod").write_text("a file")
    with pytest.raises(UserError, match="Not a directory"):
        KfpLocalStore().upload([(Path(__file__), URI / "a")])


def test_directory_of_a_pod_is_refused_where_other_machines_read_it() -> None:
    context = click.Context(click.Command("ppo"))
    skip_fetch(context, "a RayJob reads object storage only")
    with pytest.raises(UserError, match="RayJob") as raised:
        ARTIFACT.convert(str(URI), None, context)
    assert "gs://BUCKET/PATH" in raised.value.remedy
    s3 = ObjectUri("s3", "bucket", "corpus")
    assert ARTIFACT.convert(str(s3), None, context) == mirror(s3)
