"""gs:// URIs and their mirrors."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.console import UserError
from components.storage.uri import GsUri, mirror, name_mirrors_by_uri, parse_place, shown, uri_of

PART = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/"), min_size=1, max_size=18).filter(
    lambda part: part not in (".", "..")
)
URIS = st.builds(GsUri, st.just("bucket-1"), st.lists(PART, min_size=1, max_size=4).map("/".join))


@given(URIS)
def test_a_mirror_tells_its_uri(uri: GsUri) -> None:
    assert uri_of(mirror(uri)) == uri
    assert uri_of(mirror(uri) / "checkpoints" / "000012") == uri / "checkpoints/000012"
    assert uri_of(mirror(uri, "0123abcd") / "checkpoints") == uri / "checkpoints"
    assert parse_place(str(uri)) == GsUri(uri.bucket, uri.path.strip("/"))


@given(URIS)
def test_a_message_names_the_uri_and_not_its_mirror(uri: GsUri) -> None:
    for place in (mirror(uri), mirror(uri, "0123abcd"), mirror(uri).with_name(f".{mirror(uri).name}.partial-0a1b2c3d")):
        assert name_mirrors_by_uri(f"cannot read {place}/a b.bc: no") == f"cannot read {uri}/a b.bc: no"
    assert name_mirrors_by_uri("cannot read /tmp/@/a") == "cannot read /tmp/@/a"


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


@pytest.mark.parametrize("name", ["a\nb", "a\rb", "tab\t", "nul\0", "bell\x07", "del\x7f", "csi\x9b", "x/\x1b[2J/y"])
def test_a_name_with_control_characters_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="control character"):
        parse_place(f"gs://bucket/{name}")


@pytest.mark.parametrize(("name", "told"), [("a" * 1025, "longer than 1024 bytes"), ("a\udcff", "not valid UTF-8")])
def test_a_name_that_no_object_can_have_is_refused(name: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        parse_place(f"gs://bucket/{name}")


@pytest.mark.parametrize("part", ["a" * 221, "\u4e00" * 25])
def test_a_name_too_long_for_a_directory_is_told_with_its_uri(part: str) -> None:
    with pytest.raises(UserError, match="too long for the name of a directory") as raised:
        mirror(GsUri("bucket", f"runs/{part}/x"))
    assert raised.value.problem.startswith("gs://bucket/runs/")
