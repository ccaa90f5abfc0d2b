"""gs:// URIs and their mirrors."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.console import UserError
from components.storage.uri import GsUri, mirror, parse_place, shown, uri_of

PART = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/"), min_size=1, max_size=20).filter(
    lambda part: part not in (".", "..")
)
URIS = st.builds(GsUri, st.just("bucket-1"), st.lists(PART, min_size=1, max_size=4).map("/".join))


@given(URIS)
def test_a_mirror_tells_its_uri(uri: GsUri) -> None:
    assert uri_of(mirror(uri)) == uri
    assert uri_of(mirror(uri) / "checkpoints" / "000012") == uri / "checkpoints/000012"
    assert parse_place(str(uri)) == GsUri(uri.bucket, uri.path.strip("/"))


@given(URIS, URIS)
def test_no_mirror_lies_in_another(one: GsUri, other: GsUri) -> None:
    assert one == other or not mirror(one).is_relative_to(mirror(other))


def test_what_is_no_mirror_has_no_uri(tmp_path: Path) -> None:
    assert uri_of(tmp_path) is None
    assert shown(tmp_path) == str(tmp_path)
    assert shown(mirror(GsUri("b-1", "vocab")) / "x.buckets") == "gs://b-1/vocab/x.buckets"


def test_paths_and_file_uris() -> None:
    assert parse_place("runs/demo") == Path("runs/demo")
    assert parse_place("file:///runs/a%20b") == Path("/runs/a b")
    assert parse_place("gs://bucket/a/b/") == GsUri("bucket", "a/b")


@pytest.mark.parametrize(
    "text", ["gs://bucket", "gs://bucket/", "gs:///a", "gs://Bucket/a", "gs://bucket/a//b", "gs://bucket/../a",
             "s3://bucket/a", "minio://mlpipeline/a", "file://host/a", "file://"],
)  # fmt: skip
def test_what_names_no_place_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=text.split(":")[0]):
        parse_place(text)


@pytest.mark.parametrize("bucket", ["ab", "Bucket", "-abc", "a b c"])
def test_what_can_be_no_bucket_is_told_how_they_are_named(bucket: str) -> None:
    with pytest.raises(UserError, match=f"{bucket!r} cannot be the name of a bucket") as raised:
        parse_place(f"gs://{bucket}/x")
    assert "3 to 63 characters" in raised.value.remedy
