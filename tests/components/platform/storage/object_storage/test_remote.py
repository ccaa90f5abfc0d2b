"""Artifacts in object storage, on a real server."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from components.platform.errors import UserError
from components.platform.storage import discard, publish, read_manifest
from components.platform.storage import manifest as manifest_module
from components.platform.storage.manifest import Manifest, scan_directory
from components.platform.storage.object_storage import gcs, s3
from components.platform.storage.object_storage import remote as remote_module
from components.platform.storage.object_storage.fetch import fetch, fetch_file, fetch_tree
from components.platform.storage.object_storage.remote import (
    RemoteManifest,
    read_remote_manifest,
    read_verified_manifest,
    upload,
)
from components.platform.storage.object_storage.stores import store_of
from components.platform.storage.shared_state.workdir import listing, pull_file
from components.platform.storage.uri import ObjectUri, mirror
from tests.servers.storage_server import NO_DELETE, READ_ONLY
from tests.support.bitcode import bitcode
from tests.support.buckets import names, put_object, remove_object


@pytest.fixture
def place(any_place: ObjectUri) -> ObjectUri:
    return any_place


def write(uri: ObjectUri, **files: str) -> None:
    with publish(mirror(uri), "trace") as directory:
        for name, text in files.items():
            (directory / name).write_text(text)


def forget(cache: Path) -> None:
    """Move the cache away, as on another machine without mirrors."""
    if cache.exists():
        cache.rename(cache.with_name(f"old-{len(os.listdir(cache.parent))}"))


def test_published_artifact_is_fetched_unchanged(place: ObjectUri, cache: Path) -> None:
    with publish(mirror(place), "trace") as directory:
        (directory / "bin").mkdir()
        (directory / "bin" / "clang").write_bytes(b"\x7fELF" + bytes(range(256)) * 40)
        (directory / "bin" / "clang").chmod(0o755)
        (directory / "bin" / "clang++").symlink_to("clang")
        (directory / "empty").touch()
    made = read_manifest(mirror(place)).files
    forget(cache)
    back = fetch(place)
    assert read_manifest(back).files == made
    assert os.access(back / "bin" / "clang", os.X_OK) and not os.access(back / "empty", os.X_OK)
    assert os.readlink(back / "bin" / "clang++") == "clang"


def test_large_file_and_many_files_are_published(place: ObjectUri, cache: Path) -> None:
    with publish(mirror(place), "trace") as directory:
        (directory / "large").write_bytes(os.urandom(9 << 20))  # more than one request transfers
        for number in range(150):
            (directory / str(number)).write_text(str(number))
    made = read_manifest(mirror(place)).files
    forget(cache)
    assert read_manifest(fetch(place)).files == made


def test_local_artifact_is_not_downloaded_again(place: ObjectUri) -> None:
    write(place, a="1")
    before = os.stat(mirror(place) / "a").st_ino
    assert os.stat(fetch(place) / "a").st_ino == before
    (mirror(place) / "a").unlink()
    assert (fetch(place) / "a").read_text() == "1"


def test_replacing_an_artifact_removes_the_old_files(place: ObjectUri, cache: Path) -> None:
    write(place, a="old", b="old")
    write(place, a="new")
    forget(cache)
    assert sorted(p.name for p in fetch(place).iterdir()) == ["a", "manifest.json"]
    assert len(names(place)) == 2


def test_concurrent_replacement_is_not_overwritten(place: ObjectUri) -> None:
    write(place, a="old")
    with publish(mirror(place), "trace") as directory:
        (directory / "a").write_text("slow")
        before = read_remote_manifest(place)
        assert before.version
        (mirror(place / "other") / "x").mkdir(parents=True)
        (mirror(place / "other") / "x" / "a").write_text("quick")
        other = mirror(place / "other") / "x"
        upload(other, Manifest(other, scan_directory(other)), before)
    assert (fetch(place) / "a").read_text() == "quick" == (mirror(place) / "a").read_text()


def test_artifact_removed_concurrently_is_published_again(place: ObjectUri, cache: Path) -> None:
    write(place, a="old")
    with publish(mirror(place), "trace") as directory:
        (directory / "a").write_text("new")
        remove_object(place, "manifest.json")
    assert (mirror(place) / "a").read_text() == "new"
    forget(cache)
    assert (fetch(place) / "a").read_text() == "new"


def test_identical_content_is_not_uploaded_again(place: ObjectUri) -> None:
    write(place, a="1")
    version = read_remote_manifest(place).version
    assert version
    write(place, a="1")
    assert read_remote_manifest(place).version == version


def test_one_of_sixteen_writers_wins_and_all_use_its_artifact(
    place: ObjectUri, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each writer is a process with its own mirrors, and all start before the first ends, as on sixteen machines."""
    code = (
        "import sys\n"
        "from components.platform.storage import publish\n"
        "from components.platform.storage.uri import mirror, parse_location\n"
        "place = mirror(parse_location(sys.argv[1]))\n"
        "with publish(place, 'trace') as directory:\n"
        "    (directory / 'who').write_text(sys.argv[2])\n"
        "    print('ready', flush=True)\n    sys.stdin.readline()\n"
        "print((place / 'who').read_text())\n"
    )
    writers = []
    for number in range(16):
        environment = os.environ | {"MLGO_CACHE_DIR": str(cache / str(number))}
        command = [sys.executable, "-c", code, str(place), str(number)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        writers.append(subprocess.Popen(command, env=environment, text=True, **pipes))  # type: ignore[call-overload]
    for writer in writers:
        assert writer.stdout is not None
        while writer.stdout.readline() != "ready\n":
            assert writer.poll() is None
    with ThreadPoolExecutor(16) as pool:
        outputs = list(pool.map(lambda writer: writer.communicate("\n", timeout=120)[0], writers))
    winners = {output.splitlines()[-1] for output in outputs}
    assert len(winners) == 1
    assert sum("another writer published first" in output for output in outputs) == 15
    assert (fetch(place) / "who").read_text() == winners.pop()
    assert len(names(place)) == 2, "the uploads of the losing writers are removed"


def test_failed_writer_leaves_no_objects(place: ObjectUri) -> None:
    with pytest.raises(KeyboardInterrupt), publish(mirror(place), "trace") as directory:
        (directory / "a").write_text("half")
        raise KeyboardInterrupt
    assert names(place) == []
    with pytest.raises(UserError, match="not a finished artifact"):
        fetch(place)


def test_corrupted_byte_is_detected(place: ObjectUri, cache: Path) -> None:
    write(place, a="sound", b="sound")
    remote = read_remote_manifest(place)
    put_object(place, f"{remote.data}/a", "sOund")
    forget(cache)
    with pytest.raises(UserError, match=r"damaged.*: a\n") as raised:
        fetch(place)
    assert raised.value.remedy and not mirror(place).exists()


def replace_on_each_read(monkeypatch: pytest.MonkeyPatch, cache: Path, texts: list[str | None]) -> None:
    """Whenever a manifest is read, another writer replaces the artifact by the next of `texts` (None: removes it)."""
    real = remote_module.read_remote_manifest

    def look_then_replace(uri: ObjectUri) -> RemoteManifest:
        found = real(uri)
        if texts:
            text = texts.pop(0)
            with monkeypatch.context() as elsewhere:
                elsewhere.setenv("MLGO_CACHE_DIR", str(cache / f"writer-{len(texts)}"))
                elsewhere.setattr(remote_module, "read_remote_manifest", real)
                if text is None:
                    remote_module.remove(uri)
                else:
                    write(uri, a=text, b=text)
        return found

    monkeypatch.setattr(remote_module, "read_remote_manifest", look_then_replace)


def test_artifact_replaced_during_download_is_downloaded_again(
    place: ObjectUri, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(place, a="one", c="only here")
    forget(cache)
    replace_on_each_read(monkeypatch, cache, ["two", "three"])
    found = fetch(place)
    assert {path.name: path.read_text() for path in found.iterdir() if path.name != "manifest.json"} == {
        "a": "three",
        "b": "three",
    }
    assert read_manifest(found).files == scan_directory(found)
    assert capsys.readouterr().out.count("was replaced while it was read") == 2


def test_look_whole_checks_the_replacing_artifact(
    place: ObjectUri, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(place, a="one")
    replace_on_each_read(monkeypatch, cache, ["two"])
    found = read_verified_manifest(place)
    assert found.version and found == read_remote_manifest(place)
    remove_object(place, f"{found.data}/a")
    assert not read_verified_manifest(place).version


@pytest.mark.parametrize(
    ("texts", "named"), [([None], "was removed while it was read"), (list("abcdefghij"), "being modified concurrently")]
)
def test_artifact_removed_or_modified_during_every_attempt_is_an_error(
    place: ObjectUri, cache: Path, monkeypatch: pytest.MonkeyPatch, texts: list[str | None], named: str
) -> None:
    write(place, a="one")
    forget(cache)
    replace_on_each_read(monkeypatch, cache, list(texts))
    with pytest.raises(UserError, match=named):
        fetch(place)
    assert not mirror(place).exists()


def test_each_file_is_checksummed_once(place: ObjectUri, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real = manifest_module._entry
    monkeypatch.setattr(manifest_module, "_entry", lambda d, path: read.append(path.name) or real(d, path))
    write(place, a="1", b="2")
    assert sorted(read) == ["a", "b"]
    made = read_manifest(mirror(place)).files
    forget(cache)
    read.clear()
    assert read_manifest(fetch(place)).files == made and sorted(read) == ["a", "b"]


def test_missing_file_and_invalid_manifest_are_errors(place: ObjectUri, cache: Path) -> None:
    write(place, a="1")
    remove_object(place, f"{read_remote_manifest(place).data}/a")
    forget(cache)
    with pytest.raises(UserError, match="missing"):
        fetch(place)
    put_object(place, "manifest.json", "[]")
    with pytest.raises(UserError, match="is not a manifest"):
        fetch(place)


def test_missing_object_error_omits_the_server_response(place: ObjectUri, cache: Path) -> None:
    write(place, a="1")
    data = read_remote_manifest(place).data
    remove_object(place, f"{data}/a")
    forget(cache)
    for read, named in (
        (lambda: fetch(place), f"{place}/{data}/a is missing"),
        (lambda: fetch_file(place / "nowhere.yaml"), f"no object {place}/nowhere.yaml"),
        (lambda: pull_file(mirror(place / "nowhere.yaml")), f"{place}/nowhere.yaml: "),
        (lambda: fetch(ObjectUri(place.scheme, "no-such-bucket", "a")), f"{place.scheme}://no-such-bucket/a"),
    ):
        with pytest.raises(UserError) as raised:
            read()
        problem = raised.value.problem
        assert named in problem
        assert not any(noise in problem for noise in ("{", "\n", "GET ", "http:", "alt=media", str(cache)))


def test_unwritable_cache_is_an_error(place: ObjectUri, monkeypatch: pytest.MonkeyPatch) -> None:
    write(place, a="1")
    monkeypatch.setenv("MLGO_CACHE_DIR", "/proc/cache")
    with pytest.raises(UserError, match=rf"the cache in /proc/cache cannot hold {place}") as raised:
        fetch(place)
    assert "MLGO_CACHE_DIR" in raised.value.remedy


def test_checkpoints_are_published_discarded_and_fetched_singly(place: ObjectUri, cache: Path) -> None:
    checkpoints = mirror(place) / "checkpoints"
    for number in ("000001", "000002", "000003"):
        with publish(checkpoints / number, "checkpoint") as directory:
            (directory / "state").write_text(number)
    discard(checkpoints / "000001")
    forget(cache)
    discard(checkpoints / "000002")  # which has no mirror here
    assert {name.partition("/")[0] for name in listing(checkpoints)} == {"000003"}
    fetch(place / "checkpoints/000003", checkpoints / "000003")
    assert (checkpoints / "000003" / "state").read_text() == "000003"


def test_fetches_files_and_folders_of_other_tools(place: ObjectUri) -> None:
    for name in ("corpus_description.json", "a/b.bc"):
        put_object(place, name, name)
    assert fetch_file(place / "a/b.bc").read_text() == "a/b.bc"
    fetch_tree(place)
    tree = fetch_tree(place)
    assert sorted(p.relative_to(tree).as_posix() for p in tree.rglob("*") if p.is_file()) == [
        "a/b.bc",
        "corpus_description.json",
    ]
    with pytest.raises(UserError, match="nothing at"):
        fetch_tree(place / "elsewhere")
    with pytest.raises(UserError, match=r"nowhere\.yaml"):
        fetch_file(place / "nowhere.yaml")


def test_missing_bucket_is_an_error_before_the_work(place: ObjectUri) -> None:
    output = mirror(ObjectUri(place.scheme, "no-such-bucket", "a"))
    with pytest.raises(UserError, match="is there a bucket no-such-bucket"), publish(output, "trace"):
        pytest.fail("the block must not run")


def test_read_only_bucket_is_an_error_before_the_work(place: ObjectUri) -> None:
    output = mirror(ObjectUri(place.scheme, READ_ONLY, "a"))
    with (
        pytest.raises(UserError, match=r"(?s)access is denied: .*(bucket read-only|gs://read-only)"),
        publish(output, "trace"),
    ):
        pytest.fail("the block must not run")


def test_writable_bucket_is_probed_once_and_left_as_it_was(place: ObjectUri, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gcs, "_writable", set())
    monkeypatch.setattr(s3, "_conditional", set())
    store_of(place).require_writable(place / "manifest.json")
    assert names(place) == []
    monkeypatch.setattr(gcs, "bucket_of", None)  # a second probe would fail
    monkeypatch.setattr(s3, "_put", None)
    store_of(place).require_writable(place / "other.json")


def test_object_that_checked_write_access_and_remains_is_named(
    gs_place: ObjectUri, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gcs, "_writable", set())
    place = ObjectUri("gs", NO_DELETE, "a")
    store_of(place).require_writable(place / "manifest.json")
    (name,) = names(place)
    said = "".join(capsys.readouterr())
    assert said.count("warning: ") == 1 and f"remains: {place / name}: access is denied: " in said
    store_of(place).require_writable(place / "manifest.json")
    assert names(place) == [name]


def test_denied_access_names_the_required_role(gs_place: ObjectUri) -> None:
    with pytest.raises(UserError, match=r"(?s)access is denied.*roles/storage.objectAdmin"):
        fetch(ObjectUri("gs", "forbidden", "a"))


@pytest.mark.parametrize(("tell_s", "words"), [(0.0, 1), (60.0, 0)])
def test_unreachable_server_is_reported_while_retrying(
    gs_place: ObjectUri, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tell_s: float, words: int
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv(gcs.EMULATOR_VARIABLE, f"http://127.0.0.1:{unused.getsockname()[1]}")
    gcs._client.cache_clear()
    monkeypatch.setattr(gcs, "DEADLINE_S", 2.0)
    monkeypatch.setattr(gcs, "REPORT_RETRY_AFTER_S", tell_s)
    with pytest.raises(UserError, match=r"does not answer: .*Connection refused") as raised:
        fetch(gs_place)
    assert "Max retries" not in raised.value.problem
    assert (
        capsys.readouterr().out.count(f"waiting for object storage at {os.environ[gcs.EMULATOR_VARIABLE]}, 2 s more")
        == words
    )


def test_missing_credentials_error_has_a_remedy(
    gs_place: ObjectUri, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(gcs.EMULATOR_VARIABLE)
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("NO_GCE_CHECK", "true")  # do not look for a virtual machine's metadata server
    monkeypatch.setenv("HOME", str(tmp_path))
    gcs._client.cache_clear()
    with pytest.raises(UserError, match="no Google Cloud credentials") as raised:
        fetch(gs_place)
    assert "gcloud auth application-default login" in raised.value.remedy


def test_step_accepts_uris(place: ObjectUri, cache: Path) -> None:
    """Run a real step from its command line with input and output in the bucket."""
    environment: dict[str, Any] = os.environ | {"MLGO_CACHE_DIR": str(cache)}
    for name in ("a.bc", "b/c.bc"):
        put_object(place, f"loose/{name}", bitcode(name.encode()))
    command = [
        sys.executable,
        "-m",
        "components.corpus",
        "make",
        "--input",
        f"{place}/loose",
        "--default-args",
        "-cc1 -Oz",
        "--output",
        f"{place}/corpus",
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert f"{place}/corpus" in done.stdout
    forget(cache)
    assert (fetch(place / "corpus") / "corpus_description.json").exists()
