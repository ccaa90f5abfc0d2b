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
from components.platform.storage.shared_state.workdir import list_files, pull_file
from components.platform.storage.uri import ObjectUri, mirror
from tests.servers.storage_server import NO_DELETE, READ_ONLY
from tests.support.bitcode import bitcode
from tests.support.buckets import names, put_object, remove_object


def write(uri: ObjectUri, **files: str) -> None:
    with publish(mirror(uri), "trace") as directory:
        for name, text in files.items():
            (directory / name).write_text(text)


def forget(cache: Path) -> None:
    """Move the cache away, as on another machine without mirrors."""
    if cache.exists():
        cache.rename(cache.with_name(f"old-{len(os.listdir(cache.parent))}"))


def test_published_artifact_is_fetched_unchanged(any_uri: ObjectUri, cache: Path) -> None:
    with publish(mirror(any_uri), "trace") as directory:
        (directory / "bin").mkdir()
        (directory / "bin" / "clang").write_bytes(b"\x7fELF" + bytes(range(256)) * 40)
        (directory / "bin" / "clang").chmod(0o755)
        (directory / "bin" / "clang++").symlink_to("clang")
        (directory / "empty").touch()
        (directory / "large").write_bytes(os.urandom(9 << 20))  # more than one request transfers
        for number in range(150):
            (directory / str(number)).write_text(str(number))
    made = read_manifest(mirror(any_uri)).files
    forget(cache)
    back = fetch(any_uri)
    assert read_manifest(back).files == made
    assert os.access(back / "bin" / "clang", os.X_OK) and not os.access(back / "empty", os.X_OK)
    assert os.readlink(back / "bin" / "clang++") == "clang"


def test_local_artifact_is_not_downloaded_again(any_uri: ObjectUri) -> None:
    write(any_uri, a="1")
    before = os.stat(mirror(any_uri) / "a").st_ino
    assert os.stat(fetch(any_uri) / "a").st_ino == before
    (mirror(any_uri) / "a").unlink()
    assert (fetch(any_uri) / "a").read_text() == "1"


def test_replacing_an_artifact_removes_the_old_files(any_uri: ObjectUri, cache: Path) -> None:
    write(any_uri, a="old", b="old")
    write(any_uri, a="new")
    forget(cache)
    assert sorted(p.name for p in fetch(any_uri).iterdir()) == ["a", "manifest.json"]
    assert len(names(any_uri)) == 2


def test_concurrent_replacement_is_not_overwritten(any_uri: ObjectUri) -> None:
    write(any_uri, a="old")
    with publish(mirror(any_uri), "trace") as directory:
        (directory / "a").write_text("slow")
        before = read_remote_manifest(any_uri)
        assert before.version
        (mirror(any_uri / "other") / "x").mkdir(parents=True)
        (mirror(any_uri / "other") / "x" / "a").write_text("quick")
        other = mirror(any_uri / "other") / "x"
        upload(other, Manifest(other, scan_directory(other)), before)
    assert (fetch(any_uri) / "a").read_text() == "quick" == (mirror(any_uri) / "a").read_text()


def test_artifact_removed_concurrently_is_published_again(any_uri: ObjectUri, cache: Path) -> None:
    write(any_uri, a="old")
    with publish(mirror(any_uri), "trace") as directory:
        (directory / "a").write_text("new")
        remove_object(any_uri, "manifest.json")
    assert (mirror(any_uri) / "a").read_text() == "new"
    forget(cache)
    assert (fetch(any_uri) / "a").read_text() == "new"


def test_identical_content_is_not_uploaded_again(any_uri: ObjectUri) -> None:
    write(any_uri, a="1")
    version = read_remote_manifest(any_uri).version
    assert version
    write(any_uri, a="1")
    assert read_remote_manifest(any_uri).version == version


def test_one_of_sixteen_writers_wins_and_all_use_its_artifact(
    storage_uri: ObjectUri, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each writer is a process with its own mirrors, and all start before the first ends, as on sixteen machines."""
    code = (
        "import sys\n"
        "from components.platform.storage import publish\n"
        "from components.platform.storage.uri import mirror, parse_location\n"
        "directory = mirror(parse_location(sys.argv[1]))\n"
        "with publish(directory, 'trace') as partial:\n"
        "    (partial / 'who').write_text(sys.argv[2])\n"
        "    print('ready', flush=True)\n    sys.stdin.readline()\n"
        "print((directory / 'who').read_text())\n"
    )
    writers = []
    for number in range(16):
        environment = os.environ | {"MLGO_CACHE_DIR": str(cache / str(number))}
        command = [sys.executable, "-c", code, str(storage_uri), str(number)]
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
    assert sum("published first" in output for output in outputs) == 15
    assert (fetch(storage_uri) / "who").read_text() == winners.pop()
    assert len(names(storage_uri)) == 2, "the uploads of the losing writers are removed"


def test_failed_writer_leaves_no_objects(any_uri: ObjectUri) -> None:
    with pytest.raises(KeyboardInterrupt), publish(mirror(any_uri), "trace") as directory:
        (directory / "a").write_text("half")
        raise KeyboardInterrupt
    assert names(any_uri) == []
    with pytest.raises(UserError, match="finished artifact"):
        fetch(any_uri)


def test_corrupted_byte_is_detected(gs_uri: ObjectUri, cache: Path) -> None:
    write(gs_uri, a="sound", b="sound")
    remote = read_remote_manifest(gs_uri)
    put_object(gs_uri, f"{remote.data}/a", "sOund")
    forget(cache)
    with pytest.raises(UserError, match=r"damaged.*: a\n") as raised:
        fetch(gs_uri)
    assert raised.value.remedy and not mirror(gs_uri).exists()


def replace_on_each_read(monkeypatch: pytest.MonkeyPatch, cache: Path, texts: list[str | None]) -> None:
    """Whenever a manifest is read, another writer replaces the artifact by the next of `texts` (None: removes it)."""
    real = remote_module.read_remote_manifest

    def look_then_replace(uri: ObjectUri) -> RemoteManifest:
        manifest = real(uri)
        if texts:
            text = texts.pop(0)
            with monkeypatch.context() as elsewhere:
                elsewhere.setenv("MLGO_CACHE_DIR", str(cache / f"writer-{len(texts)}"))
                elsewhere.setattr(remote_module, "read_remote_manifest", real)
                if text is None:
                    remote_module.remove(uri)
                else:
                    write(uri, a=text, b=text)
        return manifest

    monkeypatch.setattr(remote_module, "read_remote_manifest", look_then_replace)


def test_artifact_replaced_during_download_is_downloaded_again(
    any_uri: ObjectUri, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(any_uri, a="one", c="only here")
    forget(cache)
    replace_on_each_read(monkeypatch, cache, ["two", "three"])
    fetched = fetch(any_uri)
    assert {path.name: path.read_text() for path in fetched.iterdir() if path.name != "manifest.json"} == {
        "a": "three",
        "b": "three",
    }
    assert read_manifest(fetched).files == scan_directory(fetched)
    assert capsys.readouterr().out.count("was replaced while it was read") == 2


def test_look_whole_checks_the_replacing_artifact(
    any_uri: ObjectUri, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(any_uri, a="one")
    replace_on_each_read(monkeypatch, cache, ["two"])
    manifest = read_verified_manifest(any_uri)
    assert manifest.version and manifest == read_remote_manifest(any_uri)
    remove_object(any_uri, f"{manifest.data}/a")
    assert not read_verified_manifest(any_uri).version


@pytest.mark.parametrize(
    ("texts", "named"), [([None], "was removed while it was read"), (list("abcdefghij"), "being modified concurrently")]
)
def test_artifact_removed_or_modified_during_every_attempt_is_an_error(
    any_uri: ObjectUri, cache: Path, monkeypatch: pytest.MonkeyPatch, texts: list[str | None], named: str
) -> None:
    write(any_uri, a="one")
    forget(cache)
    replace_on_each_read(monkeypatch, cache, list(texts))
    with pytest.raises(UserError, match=named):
        fetch(any_uri)
    assert not mirror(any_uri).exists()


def test_each_file_is_checksummed_once(gs_uri: ObjectUri, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real = manifest_module._entry
    monkeypatch.setattr(manifest_module, "_entry", lambda d, path, sha: read.append(path.name) or real(d, path, sha))
    write(gs_uri, a="1", b="2")
    assert sorted(read) == ["a", "b"]
    made = read_manifest(mirror(gs_uri)).files
    forget(cache)
    read.clear()
    assert read_manifest(fetch(gs_uri)).files == made and sorted(read) == ["a", "b"]


def test_errors_of_missing_objects_and_invalid_manifests_omit_the_server_response(
    any_uri: ObjectUri, cache: Path
) -> None:
    write(any_uri, a="1")
    data = read_remote_manifest(any_uri).data
    remove_object(any_uri, f"{data}/a")
    forget(cache)
    for read, named in (
        (lambda: fetch(any_uri), f"{any_uri}/{data}/a is missing"),
        (lambda: fetch_file(any_uri / "nowhere.yaml"), f"no object {any_uri}/nowhere.yaml"),
        (lambda: pull_file(mirror(any_uri / "nowhere.yaml")), f"{any_uri}/nowhere.yaml: "),
        (
            lambda: fetch(ObjectUri(any_uri.scheme, "no-such-bucket", "a")),
            f"{any_uri.scheme}://no-such-bucket/a",
        ),
    ):
        with pytest.raises(UserError) as raised:
            read()
        problem = raised.value.problem
        assert named in problem
        assert not any(noise in problem for noise in ("{", "\n", "GET ", "http:", "alt=media", str(cache)))
    put_object(any_uri, "manifest.json", "[]")
    with pytest.raises(UserError, match="is not a manifest"):
        fetch(any_uri)


def test_unwritable_cache_is_an_error(gs_uri: ObjectUri, monkeypatch: pytest.MonkeyPatch) -> None:
    write(gs_uri, a="1")
    monkeypatch.setenv("MLGO_CACHE_DIR", "/proc/cache")
    with pytest.raises(UserError, match=str(gs_uri)) as raised:
        fetch(gs_uri)
    assert "MLGO_CACHE_DIR" in raised.value.remedy


def test_checkpoints_are_published_discarded_and_fetched_singly(any_uri: ObjectUri, cache: Path) -> None:
    checkpoints = mirror(any_uri) / "checkpoints"
    for number in ("000001", "000002", "000003"):
        with publish(checkpoints / number, "checkpoint") as directory:
            (directory / "state").write_text(number)
    discard(checkpoints / "000001")
    forget(cache)
    discard(checkpoints / "000002")  # which has no mirror here
    assert {name.partition("/")[0] for name in list_files(checkpoints)} == {"000003"}
    fetch(any_uri / "checkpoints/000003", checkpoints / "000003")
    assert (checkpoints / "000003" / "state").read_text() == "000003"


def test_fetches_files_and_folders_of_other_tools(any_uri: ObjectUri) -> None:
    for name in ("corpus_description.json", "a/b.bc"):
        put_object(any_uri, name, name)
    assert fetch_file(any_uri / "a/b.bc").read_text() == "a/b.bc"
    fetch_tree(any_uri)
    tree = fetch_tree(any_uri)
    assert sorted(p.relative_to(tree).as_posix() for p in tree.rglob("*") if p.is_file()) == [
        "a/b.bc",
        "corpus_description.json",
    ]
    with pytest.raises(UserError, match="nothing at"):
        fetch_tree(any_uri / "elsewhere")
    with pytest.raises(UserError, match=r"nowhere\.yaml"):
        fetch_file(any_uri / "nowhere.yaml")


@pytest.mark.parametrize(
    ("bucket", "named"), [("no-such-bucket", "no-such-bucket"), (READ_ONLY, r"(bucket read-only|gs://read-only)")]
)
def test_missing_or_read_only_bucket_is_an_error_before_the_work(any_uri: ObjectUri, bucket: str, named: str) -> None:
    output = mirror(ObjectUri(any_uri.scheme, bucket, "a"))
    with pytest.raises(UserError, match=named), publish(output, "trace"):
        pytest.fail("the block must not run")


def test_writable_bucket_is_probed_once_and_left_as_it_was(any_uri: ObjectUri, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gcs, "_writable", set())
    monkeypatch.setattr(s3, "_conditional", set())
    store_of(any_uri).require_writable(any_uri / "manifest.json")
    assert names(any_uri) == []
    monkeypatch.setattr(gcs, "bucket_of", None)  # a second probe would fail
    monkeypatch.setattr(s3, "_put", None)
    store_of(any_uri).require_writable(any_uri / "other.json")


def test_object_that_checked_write_access_and_remains_is_named(
    gs_uri: ObjectUri, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gcs, "_writable", set())
    any_uri = ObjectUri("gs", NO_DELETE, "a")
    store_of(any_uri).require_writable(any_uri / "manifest.json")
    (name,) = names(any_uri)
    said = "".join(capsys.readouterr())
    assert said.count("warning: ") == 1 and f"{any_uri / name}" in said
    store_of(any_uri).require_writable(any_uri / "manifest.json")
    assert names(any_uri) == [name]


def test_denied_access_names_the_required_role(gs_uri: ObjectUri) -> None:
    with pytest.raises(UserError, match=r"roles/storage.objectAdmin"):
        fetch(ObjectUri("gs", "forbidden", "a"))


@pytest.mark.parametrize(("tell_s", "words"), [(0.0, 1), (60.0, 0)])
def test_unreachable_server_is_reported_while_retrying(
    gs_uri: ObjectUri, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tell_s: float, words: int
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv(gcs.EMULATOR_VARIABLE, f"http://127.0.0.1:{unused.getsockname()[1]}")
    gcs._client.cache_clear()
    monkeypatch.setattr(gcs, "DEADLINE_S", 2.0)
    monkeypatch.setattr(gcs, "REPORT_RETRY_AFTER_S", tell_s)
    with pytest.raises(UserError, match="Connection refused") as raised:
        fetch(gs_uri)
    assert "Max retries" not in raised.value.problem
    assert (
        capsys.readouterr().out.count(f"waiting for object storage at {os.environ[gcs.EMULATOR_VARIABLE]}, 2 s more")
        == words
    )


def test_missing_credentials_error_has_a_remedy(
    gs_uri: ObjectUri, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(gcs.EMULATOR_VARIABLE)
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("NO_GCE_CHECK", "true")  # do not look for a virtual machine's metadata server
    monkeypatch.setenv("HOME", str(tmp_path))
    gcs._client.cache_clear()
    with pytest.raises(UserError, match="no Google Cloud credentials") as raised:
        fetch(gs_uri)
    assert "gcloud auth" in raised.value.remedy


def test_step_accepts_uris(gs_uri: ObjectUri, cache: Path) -> None:
    """Run a real step from its command line with input and output in the bucket."""
    environment: dict[str, Any] = os.environ | {"MLGO_CACHE_DIR": str(cache)}
    for name in ("a.bc", "b/c.bc"):
        put_object(gs_uri, f"loose/{name}", bitcode(name.encode()))
    command = [sys.executable, "-m", "components.corpus", "make", "--input", f"{gs_uri}/loose"]
    command += ["--default-args", "-cc1 -Oz", "--output", f"{gs_uri}/corpus"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert f"{gs_uri}/corpus" in done.stdout
    forget(cache)
    assert (fetch(gs_uri / "corpus") / "corpus_description.json").exists()
