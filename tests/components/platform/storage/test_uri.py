"""gs:// URIs and their mirrors."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.platform.errors import UserError
from components.platform.storage.uri import ObjectUri, display_path, mirror, name_mirrors_by_uri, parse_location, uri_of

PART = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/"), min_size=1, max_size=18).filter(
    lambda part: part not in (".", "..")
)
PATHS = st.lists(PART, min_size=1, max_size=4).map("/".join)
URIS = st.builds(ObjectUri, st.sampled_from(["gs", "s3"]), st.just("bucket-1"), PATHS)


@given(URIS)
def test_uri_is_recovered_from_its_mirror(uri: ObjectUri) -> None:
    assert uri_of(mirror(uri)) == uri
    assert uri_of(mirror(uri) / "checkpoints" / "000012") == uri / "checkpoints/000012"
    assert uri_of(mirror(uri, "0123abcd") / "checkpoints") == uri / "checkpoints"
    assert parse_location(str(uri)) == ObjectUri(uri.scheme, uri.bucket, uri.path.strip("/"))


@given(URIS)
def test_messages_name_the_uri_instead_of_the_mirror(uri: ObjectUri) -> None:
    for path in (mirror(uri), mirror(uri, "0123abcd"), mirror(uri).with_name(f".{mirror(uri).name}.partial-0a1b2c3d")):
        assert name_mirrors_by_uri(f"cannot read {path}/a b.bc: no") == f"cannot read {uri}/a b.bc: no"
    assert name_mirrors_by_uri("cannot read /tmp/@/a") == "cannot read /tmp/@/a"


@given(URIS, URIS)
def test_no_mirror_contains_another(one: ObjectUri, other: ObjectUri) -> None:
    assert one == other or not mirror(one).is_relative_to(mirror(other))


def test_other_paths_have_no_uri(tmp_path: Path) -> None:
    assert uri_of(tmp_path) is None
    assert display_path(tmp_path) == str(tmp_path)
    assert display_path(mirror(ObjectUri("gs", "b-1", "vocab")) / "x.buckets") == "gs://b-1/vocab/x.buckets"


def test_parses_paths_and_file_uris() -> None:
    assert parse_location("runs/demo") == Path("runs/demo")
    assert parse_location("file:///runs/a%20b") == Path("/runs/a b")
    assert parse_location("gs://bucket/a/b/") == ObjectUri("gs", "bucket", "a/b")


@pytest.mark.parametrize(
    "text",
    [
        "gs://bucket",
        "gs://bucket/",
        "gs:///a",
        "gs://Bucket/a",
        "gs://bucket/a//b",
        "gs://bucket/../a",
        "s3://bucket",
        "s3://Bucket/a",
        "minio://mlpipeline/a",
        "file://host/a",
        "file://",
    ],
)
def test_invalid_place_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=text.split(":")[0]):
        parse_location(text)


@pytest.mark.parametrize("bucket", ["ab", "Bucket", "-abc", "a b c"])
def test_invalid_bucket_name_error_gives_the_rules(bucket: str) -> None:
    with pytest.raises(UserError, match=bucket) as raised:
        parse_location(f"gs://{bucket}/x")
    assert "3 to 63 characters" in raised.value.remedy


@pytest.mark.parametrize("name", ["a\nb", "a\rb", "tab\t", "nul\0", "bell\x07", "del\x7f", "csi\x9b", "x/\x1b[2J/y"])
def test_name_with_control_characters_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="control character"):
        parse_location(f"gs://bucket/{name}")


@pytest.mark.parametrize(("name", "expected"), [("a" * 1025, "longer than 1024 bytes"), ("a\udcff", "not valid UTF-8")])
def test_invalid_object_name_is_refused(name: str, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        parse_location(f"gs://bucket/{name}")


@pytest.mark.parametrize("part", ["a" * 221, "\u4e00" * 25])
def test_too_long_directory_name_error_has_the_uri(part: str) -> None:
    with pytest.raises(UserError, match="too long") as raised:
        mirror(ObjectUri("gs", "bucket", f"runs/{part}/x"))
    assert raised.value.problem.startswith("gs://bucket/runs/")
