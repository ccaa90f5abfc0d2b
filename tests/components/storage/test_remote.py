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

from components.console import UserError
from components.storage import discard, gcs, publish, read_manifest
from components.storage import manifest as manifest_module
from components.storage import remote as remote_module
from components.storage.fetch import fetch, fetch_file, fetch_tree
from components.storage.manifest import Manifest, describe
from components.storage.remote import RemoteManifest, look, look_whole, upload
from components.storage.uri import GsUri, mirror
from components.storage.workdir import listing, pull_file
from tests.bitcode import bitcode


def write(uri: GsUri, **files: str) -> None:
    with publish(mirror(uri)) as directory:
        for name, text in files.items():
            (directory / name).write_text(text)


def names(uri: GsUri) -> list[str]:
    return [blob.name.removeprefix(f"{uri.path}/") for blob in gcs.bucket_of(uri).list_blobs(prefix=f"{uri.path}/")]


def forget(cache: Path) -> None:
    """As on another machine: no mirrors."""
    if cache.exists():
        cache.rename(cache.with_name(f"old-{len(os.listdir(cache.parent))}"))


def test_an_artifact_goes_there_and_comes_back(place: GsUri, cache: Path) -> None:
    with publish(mirror(place)) as directory:
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


def test_large_files_and_many(place: GsUri, cache: Path) -> None:
    with publish(mirror(place)) as directory:
        (directory / "large").write_bytes(os.urandom(9 << 20))  # beyond what one request carries
        for number in range(150):
            (directory / str(number)).write_text(str(number))
    made = read_manifest(mirror(place)).files
    forget(cache)
    assert read_manifest(fetch(place)).files == made


def test_what_is_here_is_not_fetched_again(place: GsUri) -> None:
    write(place, a="1")
    before = os.stat(mirror(place) / "a").st_ino
    assert os.stat(fetch(place) / "a").st_ino == before
    (mirror(place) / "a").unlink()
    assert (fetch(place) / "a").read_text() == "1"


def test_replacing_leaves_only_the_new_files(place: GsUri, cache: Path) -> None:
    write(place, a="old", b="old")
    write(place, a="new")
    forget(cache)
    assert sorted(p.name for p in fetch(place).iterdir()) == ["a", "manifest.json"]
    assert len(names(place)) == 2


def test_what_was_replaced_meanwhile_is_not_overwritten(place: GsUri) -> None:
    write(place, a="old")
    with publish(mirror(place)) as directory:
        (directory / "a").write_text("slow")
        before = look(place)
        assert before.generation > 0
        (mirror(place / "other") / "x").mkdir(parents=True)
        (mirror(place / "other") / "x" / "a").write_text("quick")
        other = mirror(place / "other") / "x"
        upload(other, Manifest(other, describe(other)), before)
    assert (fetch(place) / "a").read_text() == "quick" == (mirror(place) / "a").read_text()


def test_what_was_removed_meanwhile_is_published_anew(place: GsUri, cache: Path) -> None:
    write(place, a="old")
    with publish(mirror(place)) as directory:
        (directory / "a").write_text("new")
        gcs.bucket_of(place).blob(f"{place.path}/manifest.json").delete()
    assert (mirror(place) / "a").read_text() == "new"
    forget(cache)
    assert (fetch(place) / "a").read_text() == "new"


def test_the_same_content_again_is_not_uploaded(place: GsUri) -> None:
    write(place, a="1")
    generation = look(place).generation
    assert generation > 0
    write(place, a="1")
    assert look(place).generation == generation


def test_of_sixteen_writers_one_wins_and_all_have_its_artifact(
    place: GsUri, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each in a process with mirrors of its own, all begun before the first ends, as on sixteen machines."""
    code = (
        "import sys\nfrom components.storage import publish\nfrom components.storage.uri import mirror, parse_place\n"
        "place = mirror(parse_place(sys.argv[1]))\n"
        "with publish(place) as directory:\n"
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
    assert sum("another writer was first" in output for output in outputs) == 15
    assert (fetch(place) / "who").read_text() == winners.pop()
    assert len(names(place)) == 2, "what the losers uploaded is gone"


def test_a_failed_writer_leaves_nothing(place: GsUri) -> None:
    with pytest.raises(KeyboardInterrupt), publish(mirror(place)) as directory:
        (directory / "a").write_text("half")
        raise KeyboardInterrupt
    assert names(place) == []
    with pytest.raises(UserError, match="no finished artifact"):
        fetch(place)


def test_a_corrupted_byte_is_found(place: GsUri, cache: Path) -> None:
    write(place, a="sound", b="sound")
    remote = look(place)
    gcs.bucket_of(place).blob((place / remote.data / "a").path).upload_from_string("sOund")
    forget(cache)
    with pytest.raises(UserError, match=r"damaged.*: a\n") as raised:
        fetch(place)
    assert raised.value.remedy and not mirror(place).exists()


def replacing(monkeypatch: pytest.MonkeyPatch, cache: Path, texts: list[str | None]) -> None:
    """Each time a manifest is read, another writer replaces the artifact by the next of `texts` (None: removes it)."""
    real = remote_module.look

    def look_then_replace(uri: GsUri) -> RemoteManifest:
        found = real(uri)
        if texts:
            text = texts.pop(0)
            with monkeypatch.context() as elsewhere:
                elsewhere.setenv("MLGO_CACHE_DIR", str(cache / f"writer-{len(texts)}"))
                elsewhere.setattr(remote_module, "look", real)
                if text is None:
                    remote_module.remove(uri)
                else:
                    write(uri, a=text, b=text)
        return found

    monkeypatch.setattr(remote_module, "look", look_then_replace)


def test_what_is_replaced_while_it_is_read_is_read_anew(
    place: GsUri, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(place, a="one", c="only here")
    forget(cache)
    replacing(monkeypatch, cache, ["two", "three"])
    found = fetch(place)
    assert {path.name: path.read_text() for path in found.iterdir() if path.name != "manifest.json"} == {
        "a": "three", "b": "three",
    }  # fmt: skip
    assert read_manifest(found).files == describe(found)
    assert capsys.readouterr().out.count("was replaced while it was read") == 2


def test_whether_an_artifact_is_whole_is_asked_of_what_replaced_it(
    place: GsUri, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(place, a="one")
    replacing(monkeypatch, cache, ["two"])
    found = look_whole(place)
    assert found.generation and found == look(place)
    gcs.bucket_of(place).blob((place / found.data / "a").path).delete()
    assert look_whole(place).generation == 0


@pytest.mark.parametrize(
    ("texts", "named"), [([None], "was removed while it was read"), (list("abcdefghij"), "changes all the time")]
)
def test_what_goes_or_never_stands_still_is_told(
    place: GsUri, cache: Path, monkeypatch: pytest.MonkeyPatch, texts: list[str | None], named: str
) -> None:
    write(place, a="one")
    forget(cache)
    replacing(monkeypatch, cache, list(texts))
    with pytest.raises(UserError, match=named):
        fetch(place)
    assert not mirror(place).exists()


def test_each_byte_is_checksummed_once(place: GsUri, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real = manifest_module._entry
    monkeypatch.setattr(manifest_module, "_entry", lambda d, path: read.append(path.name) or real(d, path))
    write(place, a="1", b="2")
    assert sorted(read) == ["a", "b"]
    made = read_manifest(mirror(place)).files
    forget(cache)
    read.clear()
    assert read_manifest(fetch(place)).files == made and sorted(read) == ["a", "b"]


def test_a_missing_file_and_a_broken_manifest_are_told(place: GsUri, cache: Path) -> None:
    write(place, a="1")
    bucket = gcs.bucket_of(place)
    bucket.blob((place / look(place).data / "a").path).delete()
    forget(cache)
    with pytest.raises(UserError, match="missing"):
        fetch(place)
    bucket.blob((place / "manifest.json").path).upload_from_string("[]")
    with pytest.raises(UserError, match="is not a manifest"):
        fetch(place)


def test_a_missing_object_is_named_without_the_answer_of_the_server(place: GsUri, cache: Path) -> None:
    write(place, a="1")
    data = look(place).data
    gcs.bucket_of(place).blob((place / data / "a").path).delete()
    forget(cache)
    for read, named in (
        (lambda: fetch(place), f"{place}/{data}/a is missing"),
        (lambda: fetch_file(place / "nowhere.yaml"), f"no object {place}/nowhere.yaml"),
        (lambda: pull_file(mirror(place / "nowhere.yaml")), f"{place}/nowhere.yaml: "),
        (lambda: fetch(GsUri("no-such-bucket", "a")), "gs://no-such-bucket/a"),
    ):
        with pytest.raises(UserError) as raised:
            read()
        problem = raised.value.problem
        assert named in problem
        assert not any(noise in problem for noise in ("{", "\n", "GET ", "http:", "alt=media", str(cache)))


def test_a_cache_that_cannot_be_written_is_named(place: GsUri, monkeypatch: pytest.MonkeyPatch) -> None:
    write(place, a="1")
    monkeypatch.setenv("MLGO_CACHE_DIR", "/proc/cache")
    with pytest.raises(UserError, match=rf"the cache in /proc/cache has no place for {place}") as raised:
        fetch(place)
    assert "MLGO_CACHE_DIR" in raised.value.remedy


def test_checkpoints_come_and_go_with_their_directory(place: GsUri, cache: Path) -> None:
    checkpoints = mirror(place) / "checkpoints"
    for number in ("000001", "000002", "000003"):
        with publish(checkpoints / number) as directory:
            (directory / "state").write_text(number)
    discard(checkpoints / "000001")
    forget(cache)
    discard(checkpoints / "000002")  # which is not here
    assert {name.partition("/")[0] for name in listing(checkpoints)} == {"000003"}
    fetch(place / "checkpoints/000003", checkpoints / "000003")
    assert (checkpoints / "000003" / "state").read_text() == "000003"


def test_files_and_folders_of_others(place: GsUri) -> None:
    for name in ("corpus_description.json", "a/b.bc"):
        gcs.bucket_of(place).blob((place / name).path).upload_from_string(name)
    assert fetch_file(place / "a/b.bc").read_text() == "a/b.bc"
    fetch_tree(place)
    tree = fetch_tree(place)
    assert sorted(p.relative_to(tree).as_posix() for p in tree.rglob("*") if p.is_file()) == [
        "a/b.bc", "corpus_description.json",
    ]  # fmt: skip
    with pytest.raises(UserError, match="nothing at"):
        fetch_tree(place / "elsewhere")
    with pytest.raises(UserError, match=r"nowhere\.yaml"):
        fetch_file(place / "nowhere.yaml")


def test_a_missing_bucket_is_told_before_the_work(place: GsUri) -> None:
    output = mirror(GsUri("no-such-bucket", "a"))
    with pytest.raises(UserError, match="is there a bucket no-such-bucket"), publish(output):
        pytest.fail("the block must not run")


def test_a_forbidden_bucket_is_told(place: GsUri) -> None:
    with pytest.raises(UserError, match=r"(?s)access is denied.*roles/storage.objectAdmin"):
        fetch(GsUri("forbidden", "a"))


@pytest.mark.parametrize(("tell_s", "words"), [(0.0, 1), (60.0, 0)])
def test_a_server_that_is_away_is_told_in_time(
    place: GsUri, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tell_s: float, words: int
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv(gcs.EMULATOR, f"http://127.0.0.1:{unused.getsockname()[1]}")
    gcs._client.cache_clear()
    monkeypatch.setattr(gcs, "DEADLINE_S", 2.0)
    monkeypatch.setattr(gcs, "TELL_S", tell_s)
    with pytest.raises(UserError, match=r"does not answer: .*Connection refused") as raised:
        fetch(place)
    assert "Max retries" not in raised.value.problem
    assert capsys.readouterr().out.count(f"waiting for object storage at {os.environ[gcs.EMULATOR]}, 2 s more") == words


def test_without_credentials_the_remedy_is_told(place: GsUri, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(gcs.EMULATOR)
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("NO_GCE_CHECK", "true")  # no search for the metadata server of a virtual machine
    monkeypatch.setenv("HOME", str(tmp_path))
    gcs._client.cache_clear()
    with pytest.raises(UserError, match="no Google Cloud credentials") as raised:
        fetch(place)
    assert "gcloud auth application-default login" in raised.value.remedy


def test_steps_take_uris(place: GsUri, cache: Path) -> None:
    """A real step from its command line: a corpus from the bucket to the bucket."""
    environment: dict[str, Any] = os.environ | {"MLGO_CACHE_DIR": str(cache)}
    for name in ("a.bc", "b/c.bc"):
        gcs.bucket_of(place).blob((place / "loose" / name).path).upload_from_string(bitcode(name.encode()))
    command = [
        sys.executable, "-m", "components.corpus", "make", "--input", f"{place}/loose", "--default-args", "-cc1 -Oz",
        "--output", f"{place}/corpus",
    ]  # fmt: skip
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert f"{place}/corpus" in done.stdout
    forget(cache)
    assert (fetch(place / "corpus") / "corpus_description.json").exists()
