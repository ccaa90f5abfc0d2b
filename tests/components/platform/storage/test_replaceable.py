"""Outputs replace artifacts of their own kind and nothing else; inputs stay what they were while they are read."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from components.corpus.__main__ import main as corpus
from components.platform.errors import UserError
from components.platform.storage import publish, read_manifest, write_manifest
from components.platform.storage.inputs import command_inputs
from components.platform.storage.kinds import KINDS, Kind, describe_kind
from components.platform.storage.object_storage.remote import is_complete, read_remote_manifest
from components.platform.storage.options import ARTIFACT, OUTPUT, TREE, WHOLE_TREE
from components.platform.storage.uri import ObjectUri, mirror
from tests.support.bitcode import bitcode


def make(output: Path, kind: Kind = "trace", text: str = "x") -> Path:
    with publish(output, kind) as directory:
        (directory / "file").write_text(text)
        (directory / "deep").mkdir()
        (directory / "deep" / "other").write_text(text)
    return output


def content(directory: Path) -> dict[str, bytes]:
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in files}


def require_refused(output: Path, around: Path, match: str, kind: Kind = "trace") -> None:
    """Check that `output` is refused before the block runs, and that nothing in `around` changes."""
    before = content(around)
    with pytest.raises(UserError, match=match) as raised, publish(output, kind):
        pytest.fail("the block must not run")
    assert raised.value.remedy
    assert content(around) == before


@pytest.mark.parametrize(
    "text",
    ["{}", "[]", "", "not JSON", '{"name": "web", "icons": []}', '{"version": 1}', '{"version": 7, "files": []}'],
)
def test_directory_with_the_manifest_of_another_tool_is_kept(tmp_path: Path, text: str) -> None:
    output = tmp_path / "x"
    output.mkdir()
    (output / "manifest.json").write_text(text)
    (output / "precious").write_text("years of work")
    require_refused(output, tmp_path, r"x is not empty and was not made by this program: its manifest\.json")


def test_files_that_a_user_put_into_an_artifact_are_kept(tmp_path: Path) -> None:
    output = make(tmp_path / "trace")
    (output / "deep" / "notes.txt").write_text("notes")
    require_refused(
        output, tmp_path, r"trace has files that are not part of the trace and would be lost: deep/notes\.txt"
    )


def test_file_that_appears_while_the_artifact_is_made_is_kept(tmp_path: Path) -> None:
    output = make(tmp_path / "trace", text="old")
    with pytest.raises(UserError, match="lost: notes"), publish(output, "trace") as directory:
        (directory / "file").write_text("new")
        (output / "notes").write_text("notes")
    assert content(output)["notes"] == b"notes" and content(output)["file"] == b"old"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "trace"])
def test_artifact_of_another_kind_is_kept(tmp_path: Path, kind: Kind) -> None:
    make(tmp_path / "a", kind)
    require_refused(tmp_path / "a", tmp_path, f"a is {describe_kind(kind)}, and would be replaced by a trace")


def test_artifact_of_an_earlier_version_is_known_by_its_files(tmp_path: Path) -> None:
    for name, file in (("policy", "policy.json"), ("trace", "trace.json"), ("unknown", "x")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text("{}")
        write_manifest(tmp_path / name)
    require_refused(tmp_path / "policy", tmp_path, "policy is a policy, and would be replaced by a trace")
    require_refused(tmp_path / "unknown", tmp_path, "unknown is an artifact of an unknown kind")
    make(tmp_path / "trace")
    assert read_manifest(tmp_path / "trace").kind == "trace"


@pytest.mark.parametrize("name", ["toolchain/deep", "toolchain/new", "toolchain/deep/new/newer", "link/new"])
def test_output_inside_an_artifact_is_refused(tmp_path: Path, name: str) -> None:
    make(tmp_path / "toolchain", "toolchain")
    (tmp_path / "link").symlink_to("toolchain/deep")
    require_refused(tmp_path / name, tmp_path, f"{name} lies within a toolchain, .*toolchain")


def test_foreign_manifest_around_an_output_is_no_obstacle_and_an_artifact_in_it_is_one(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"name": "a web page"}')
    make(tmp_path / "trace")
    make(tmp_path / "trace", text="again")
    assert content(tmp_path / "trace")["file"] == b"again"
    make(tmp_path / "runs" / "trace")
    require_refused(tmp_path / "runs", tmp_path, "runs is not empty")


def test_mount_point_is_named(tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", output], capture_output=True).returncode:
        pytest.skip("only root may mount")
    try:
        require_refused(output, tmp_path, "out is a mount point")
        make(output / "trace")
    finally:
        subprocess.run(["umount", output], check=True)


def test_damaged_artifact_of_the_same_kind_is_replaced(tmp_path: Path) -> None:
    output = make(tmp_path / "trace")
    (output / "file").unlink()
    (output / "deep" / "other").write_text("changed")
    make(output, text="new")
    assert content(output)["file"] == b"new"


def test_names_with_pattern_characters_remove_only_their_own_partial_directories(tmp_path: Path) -> None:
    for name in (".a.partial-00000000", ".b.partial-mine", ".*.partial-00000001"):
        (tmp_path / name).mkdir()
    make(tmp_path / "*")
    assert sorted(os.listdir(tmp_path)) == ["*", ".a.partial-00000000", ".b.partial-mine"]


def test_refused_output_leaves_no_parents(tmp_path: Path) -> None:
    with pytest.raises(ValueError), publish(tmp_path / "deep" / "er" / "trace", "trace"):
        raise ValueError
    assert os.listdir(tmp_path) == []


@click.command()
@click.option("--input", "inputs", type=ARTIFACT, multiple=True)
@click.option("--tree", type=TREE)
@click.option("--whole", type=WHOLE_TREE)
@click.option("--output", type=OUTPUT, required=True)
@click.pass_obj
def step(
    meanwhile: Callable[[], None], inputs: tuple[Path, ...], tree: Path | None, whole: Path | None, output: Path
) -> None:
    """Stand for a step: read the inputs twice, and let something happen in between."""
    with publish(output, "trace") as directory:
        first = [content(one) for one in (*inputs, *filter(None, (tree, whole)))]
        meanwhile()
        (directory / "file").write_text(repr(first))


def run(*arguments: str | Path, meanwhile: Callable[[], object] = lambda: None) -> None:
    CliRunner().invoke(step, [str(argument) for argument in arguments], obj=meanwhile, catch_exceptions=False)


@pytest.mark.parametrize(
    ("output", "match"),
    [
        ("in", "in is the input .*(in|link), which would change while it is read"),
        ("in/deep", "in/deep lies within the input"),
        ("in/new/er", "in/new/er lies within the input"),
        (".", "contains the input"),
        ("link", "link exists and is not a directory|link is the input"),
        ("link/deep/x", "lies within the input"),
        ("elsewhere/../in", "in is the input"),
    ],
)
def test_output_that_overlaps_with_an_input_is_refused(tmp_path: Path, output: str, match: str) -> None:
    make(tmp_path / "in")
    (tmp_path / "link").symlink_to("in")
    (tmp_path / "elsewhere").mkdir()
    before = content(tmp_path)
    with pytest.raises(UserError, match=match):
        run("--input", tmp_path / "in", "--output", tmp_path / output)
    with pytest.raises(UserError, match=match):
        run("--input", tmp_path / "link", "--output", tmp_path / output)
    assert content(tmp_path) == before


def test_output_may_lie_in_a_build_tree(tmp_path: Path) -> None:
    (tmp_path / "a.bc").write_bytes(b"BC")
    for _ in range(2):
        run("--tree", tmp_path, "--output", tmp_path / "out")
    with pytest.raises(UserError, match="the input"):
        run("--tree", tmp_path, "--output", tmp_path)
    assert (tmp_path / "a.bc").exists()


@pytest.mark.parametrize("output", ["in/out", "in/deep/out", "link/out"])
def test_output_in_an_input_that_is_read_as_a_whole_is_refused(tmp_path: Path, output: str) -> None:
    """The next run would take it for a part of the input."""
    (tmp_path / "in/deep").mkdir(parents=True)
    (tmp_path / "in/a.bc").write_bytes(b"BC")
    (tmp_path / "link").symlink_to("in")
    before = content(tmp_path)
    with pytest.raises(UserError, match="within the input"):
        run("--whole", tmp_path / "in", "--output", tmp_path / output, meanwhile=lambda: pytest.fail("must not run"))
    assert content(tmp_path) == before and not (tmp_path / output).exists()


@pytest.mark.parametrize("command", [["import", "--input"], ["make", "--input"], ["obtain", "--existing"]])
def test_corpora_are_not_made_in_their_input(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "corpus_description.json").write_text('{"modules": ["p/a", "p/b", "p/c"], "has_thinlto": false}')
    (tmp_path / "p").mkdir()
    for name in "abc":
        (tmp_path / f"p/{name}.bc").write_bytes(bitcode(name.encode()))
        (tmp_path / f"p/{name}.cmd").write_bytes(b"-cc1\0-Oz\0")
    arguments = [*command, str(tmp_path), "--output", str(tmp_path / "a")]
    with pytest.raises(UserError, match="the input"):
        corpus.main(arguments, standalone_mode=False)
    assert not (tmp_path / "a").exists()


def test_log_of_a_build_may_grow_while_its_objects_are_read(tmp_path: Path) -> None:
    for name in ("a.o", "make.log"):
        (tmp_path / "build" / "deep").mkdir(parents=True, exist_ok=True)
        (tmp_path / "build" / "deep" / name).write_text("x")

    def append(name: str) -> None:
        with open(tmp_path / "build" / "deep" / name, "a") as stream:
            stream.write("y")

    run("--tree", tmp_path / "build", "--output", tmp_path / "out", meanwhile=lambda: append("make.log"))
    with pytest.raises(UserError, match="replaced"):
        run("--tree", tmp_path / "build", "--output", tmp_path / "out", meanwhile=lambda: append("a.o"))


def replace_directory(directory: Path, text: str = "new") -> None:
    """Replace an artifact as another command does."""
    make(directory.with_name("new"), text=text)
    shutil.rmtree(directory)
    os.rename(directory.with_name("new"), directory)


def exchange_link(link: Path) -> None:
    make(link.with_name("other"), text="new")
    link.with_name("next").symlink_to("other")
    os.rename(link.with_name("next"), link.with_name("current"))


def modify_in_place(directory: Path) -> None:
    with open(directory / "deep" / "other", "r+b") as stream:
        stream.write(b"z")


@pytest.mark.parametrize("change", [replace_directory, modify_in_place, exchange_link, shutil.rmtree])
@pytest.mark.parametrize("option", ["--input", "--tree"])
def test_input_that_changes_while_it_is_read_ends_the_step(
    tmp_path: Path, change: Callable[[Path], None], option: str
) -> None:
    make(tmp_path / "in", text="old")
    (tmp_path / "current").symlink_to("in")
    name = "current" if change is exchange_link else "in"
    with pytest.raises(UserError, match=name):
        run(option, tmp_path / name, "--output", tmp_path / "out", meanwhile=lambda: change(tmp_path / "in"))
    assert not (tmp_path / "out").exists() and command_inputs() is None


def test_failure_that_comes_from_a_changed_input_is_explained(tmp_path: Path) -> None:
    make(tmp_path / "in")

    def fail() -> None:
        replace_directory(tmp_path / "in")
        raise UserError("a module is missing")

    with pytest.raises(UserError, match="replaced"):
        run("--input", tmp_path / "in", "--output", tmp_path / "out", meanwhile=fail)
    with pytest.raises(UserError, match="missing"):
        run("--input", tmp_path / "in", "--output", tmp_path / "out", meanwhile=lambda: _raise("a module is missing"))


def _raise(problem: str) -> None:
    raise UserError(problem)


def test_input_that_is_made_again_with_the_same_content_is_no_change(tmp_path: Path) -> None:
    make(tmp_path / "in")
    words = ("--input", tmp_path / "in", "--output", tmp_path / "out")
    run(*words, meanwhile=lambda: replace_directory(tmp_path / "in", "x"))
    assert (tmp_path / "out" / "file").exists()


def test_threads_of_a_step_notice_a_changed_input(tmp_path: Path) -> None:
    """Checkpoints are published by a thread."""
    make(tmp_path / "in")
    errors: list[UserError] = []

    def save() -> None:
        try:
            make(tmp_path / "checkpoint", "checkpoint")
        except UserError as error:
            errors.append(error)

    def meanwhile() -> None:
        replace_directory(tmp_path / "in")
        thread = threading.Thread(target=save)
        thread.start()
        thread.join()

    with pytest.raises(UserError):
        run("--input", tmp_path / "in", "--output", tmp_path / "out", meanwhile=meanwhile)
    assert len(errors) == 1 and "was replaced" in errors[0].problem
    assert sorted(os.listdir(tmp_path)) == ["in"]


def test_damaged_input_is_refused_before_the_step_starts(tmp_path: Path) -> None:
    make(tmp_path / "in")
    modify_in_place(tmp_path / "in")
    with pytest.raises(UserError, match="deep/other") as raised:
        run("--input", tmp_path / "in", "--output", tmp_path / "out", meanwhile=lambda: pytest.fail("must not run"))
    assert "it again" in raised.value.remedy
    assert os.listdir(tmp_path) == ["in"]


def test_files_that_a_user_edited_are_imported_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path / "in")
    modify_in_place(tmp_path / "in")
    result = CliRunner().invoke(
        step, ["--tree", str(tmp_path / "in"), "--output", str(tmp_path / "out")], obj=lambda: None
    )
    assert result.exit_code == 0 and "deep/other" in result.output


def test_remote_artifact_of_another_kind_is_kept(storage_uri: ObjectUri) -> None:
    make(mirror(storage_uri), "policy")
    before = read_remote_manifest(storage_uri)
    for output, match in (
        (storage_uri, "is a policy, and would be replaced by a trace"),
        (storage_uri / "x", "within a policy"),
    ):
        with pytest.raises(UserError, match=match), publish(mirror(output), "trace"):
            pytest.fail("the block must not run")
    assert read_remote_manifest(storage_uri) == before and is_complete(before)


def test_remote_output_that_is_an_input_is_refused(storage_uri: ObjectUri) -> None:
    make(mirror(storage_uri / "in"))
    before = read_remote_manifest(storage_uri / "in")
    for output, match in (
        (storage_uri / "in", "is the input"),
        (storage_uri / "in" / "x", "lies within"),
        (storage_uri, "contains"),
    ):
        with pytest.raises(UserError, match=match):
            run("--input", str(storage_uri / "in"), "--output", str(output))
    assert read_remote_manifest(storage_uri / "in") == before and is_complete(before)
