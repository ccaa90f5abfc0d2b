"""links.json, which extraction writes for the builds of users."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from components.core.formats.links import BuildLinks, read_links
from components.core.projects.build_links.recorded import compilers_near
from components.corpus.compilers import compilers
from components.corpus.extract_command import extract
from components.corpus.sources.import_corpus import import_modules
from components.platform.errors import UserError

SOURCES = ("one.c", "two.c", "three.c")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A build of three objects and a program, by compilers that record links, with a compilation database."""
    assert CliRunner().invoke(compilers, ["--output", str(tmp_path / "oz")], catch_exceptions=False).exit_code == 0
    directory = tmp_path / "project"
    directory.mkdir()
    entries = []
    for name in SOURCES:
        main = "main" if name == "one.c" else name[:-2]
        (directory / name).write_text(f"int {main}(void) {{ return 0; }}\n")
        words = [str(tmp_path / "oz" / "clang"), "-c", name, "-o", f"{name}.o"]
        subprocess.run(words, cwd=directory, check=True)
        entries.append({"directory": str(directory), "file": name, "arguments": words})
    (directory / "compile_commands.json").write_text(json.dumps(entries))
    link: list[str | Path] = [tmp_path / "oz" / "cc", *(f"{name}.o" for name in SOURCES), "-o", "program"]
    subprocess.run(link, cwd=directory, check=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.c").write_text("int main(void) { return 0; }\n")
    subprocess.run([tmp_path / "oz" / "cc", "a.c", "-o", "a"], cwd=tmp_path / "other", check=True)
    return directory


def extracted(output: Path, *arguments: object) -> BuildLinks:
    words = [*map(str, arguments), "--output", str(output)]
    done = CliRunner().invoke(extract, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    links = read_links(output)
    assert links is not None
    return links


def test_compilers_in_the_database_recorded_the_links(tmp_path: Path, project: Path) -> None:
    links = extracted(tmp_path / "corpus", "--compile-commands", project / "compile_commands.json")
    assert (links.source, links.tree, links.problem) == ("recorded", str(project), "")
    (link,) = links.links
    assert link.output == str(project / "program"), "the link of another project is left out"
    assert sorted(links.modules.values()) == sorted(f"{name}.o" for name in SOURCES)
    assert all(len(digest) == 64 for digest in links.modules)


@pytest.mark.parametrize("place", ["next to the build", "in the build", "in the current directory"])
def test_compilers_near_a_directory_recorded_the_links(
    tmp_path: Path, project: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "earlier" / "links").mkdir(parents=True)
    (tmp_path / "earlier" / "record-link").touch()
    if place != "next to the build":
        (tmp_path / "work").mkdir()
        (tmp_path / "oz").rename((project if place == "in the build" else tmp_path / "work") / "oz")
        monkeypatch.chdir(tmp_path / "work")
    links = extracted(tmp_path / "corpus", "--input", project, "--input-type", "directory")
    assert [link.output for link in links.links] == [str(project / "program")] and links.source == "recorded"


def test_last_compilers_to_record_come_first(tmp_path: Path) -> None:
    for time_s, name in ((2, "b"), (3, "c"), (1, "a")):
        (tmp_path / name / "links").mkdir(parents=True)
        (tmp_path / name / "record-link").touch()
        os.utime(tmp_path / name / "links", (time_s, time_s))
    assert [path.name for path in compilers_near(tmp_path)] == ["c", "b", "a"]


def test_compilers_of_a_directory_are_named(tmp_path: Path, project: Path) -> None:
    inputs = ("--input", project, "--input-type", "directory")
    (tmp_path / "far" / "away").mkdir(parents=True)
    far = (tmp_path / "oz").rename(tmp_path / "far" / "away" / "oz")
    assert extracted(tmp_path / "named", *inputs, "--compilers", far).source == "recorded"
    unknown = extracted(tmp_path / "unknown", *inputs)
    assert (unknown.source, unknown.links) == ("none", ()) and "--compilers" in unknown.problem
    with pytest.raises(UserError, match="compilers"):
        extracted(tmp_path / "wrong", *inputs, "--compilers", project)
    assert not (tmp_path / "wrong").exists()


@pytest.mark.parametrize(
    ("flags", "lto"),
    [
        ({}, {}),
        ({"one.c": ["-flto"], "two.c": ["-flto=thin"]}, {"one.c.o": "full", "two.c.o": "thin"}),
        ({"one.c": ["-flto", "-fno-lto"]}, {}),
        ({"two.c": ["@flags.rsp"]}, {"two.c.o": "thin"}),
    ],
)
def test_lto_is_what_the_commands_of_the_database_ask_for(
    tmp_path: Path, project: Path, flags: dict[str, list[str]], lto: dict[str, str]
) -> None:
    database = project / "compile_commands.json"
    (project / "flags.rsp").write_text("-flto=thin\n")
    entries = json.loads(database.read_text())
    for entry in entries:
        entry["arguments"] += flags.get(entry["file"], [])
    database.write_text(json.dumps(entries))
    assert extracted(tmp_path / "corpus", "--compile-commands", database).lto == lto


def test_imported_corpus_keeps_the_links(tmp_path: Path, project: Path) -> None:
    links = extracted(tmp_path / "corpus", "--compile-commands", project / "compile_commands.json")
    (tmp_path / "copy").mkdir()
    import_modules(tmp_path / "corpus", tmp_path / "copy")
    assert read_links(tmp_path / "copy") == links
    (tmp_path / "copy" / "links.json").write_text('{"version": 2}')
    with pytest.raises(UserError, match="has version 2"):
        read_links(tmp_path / "copy")
    (tmp_path / "copy" / "links.json").unlink()
    assert read_links(tmp_path / "copy") is None
