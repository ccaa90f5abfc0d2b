"""Files of a user's build that its flags link with LTO, or with objects of `ld -r`: linked again as from source."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.core.projects.flags.section_sizes import measure
from components.core.projects.flags.types import SectionSizes
from components.evaluation.measurements import Measurements
from components.evaluation.metrics import judge_whole_projects, summarize
from components.evaluation.metrics_types import SizeMetrics, WholeProjects
from components.evaluation.projects.link_replay import JOINED, LTO_BITCODE, NO_BITCODE, NOT_IN_CORPUS
from components.evaluation.report import terminal_report
from tests.components.evaluation.projects.test_own_build import SOURCES, compare, with_links
from tests.support.commands import run_command

PROGRAMS = ("lld-full", "lld-thin", "gnu-full", "gnu-thin", "joined", "driver")
MAKEFILE = """
.SECONDARY:
all: lld-full lld-thin gnu-full gnu-thin joined driver
full/%.o: %.cc
	@mkdir -p $(@D)
	$(CXX) -fPIC -flto=full -DFULL -c $< -o $@
thin/%.o: %.cc
	@mkdir -p $(@D)
	$(CXX) -fPIC -flto=thin -DTHIN -c $< -o $@
plain/%.o: %.cc
	@mkdir -p $(@D)
	$(CXX) -fPIC -c $< -o $@
lib-%.a: %/table.o %/words.o
	rm -f $@; $(AR) qcs $@ $^
native.o: native.c
	$(CC) -fPIC -c $< -o $@
lld-full lld-thin: lld-%: %/main.o lib-%.a native.o
	$(CXX) -fuse-ld=lld -flto=$* -Wl,--gc-sections,--thinlto-cache-dir=cache $^ -o $@
gnu-full gnu-thin: gnu-%: %/main.o lib-%.a native.o
	$(CXX) -flto=$* $^ -o $@
part.o: plain/table.o plain/words.o
	$(LD) -r -m elf_x86_64 -z noexecstack -S $^ -o $@
part-of-driver.o: plain/table.o plain/words.o
	$(CXX) -r $^ -o $@
joined: plain/main.o part.o native.o
	$(CXX) $^ -o $@
driver: plain/main.o part-of-driver.o native.o
	$(CXX) $^ -o $@
"""
LLVM = Path("/usr/lib/llvm-19/bin")


def make(directory: Path, clang: Path, *variables: str) -> None:
    """Build in a directory; variables make the compilers, if there are any, those of no record."""
    compilers = [f"CC={clang}", f"CXX={clang.with_name(clang.name.replace('clang', 'clang++'))}", "LD=ld"]
    environment = {**os.environ, "PATH": f"{clang.parent}{os.pathsep}{os.environ['PATH']}"}
    command: list[str | Path] = ["make", "-s", "-C", directory, *compilers, f"AR={LLVM / 'llvm-ar'}", *variables]
    subprocess.run(command, check=True, capture_output=True, env=environment)


def write_project(directory: Path) -> Path:
    directory.mkdir()
    for name, text in {**SOURCES, "Makefile": MAKEFILE}.items():
        (directory / name).write_text(text)
    return directory


def database(directory: Path, compilers: Path) -> Path:
    """Write the commands of the build as a build system does: without what the compilers append."""
    named = {
        f"{kind}/{name}.o": f"{name}.cc" for kind in ("full", "thin", "plain") for name in ("main", "table", "words")
    }
    flags = {"full": ["-flto=full", "-DFULL"], "thin": ["-flto=thin", "-DTHIN"]}
    entries = [
        {
            "directory": str(directory),
            "file": source,
            "arguments": [str(compilers / "clang"), *flags.get(output.split("/")[0], []), "-c", source, "-o", output],
        }
        for output, source in {**named, "native.o": "native.c"}.items()
    ]
    path = directory / "compile_commands.json"
    path.write_text(json.dumps(entries))
    return path


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a user's tree `project`, built, and the `corpus` of it."""
    directory = tmp_path_factory.mktemp("own-lto")
    done = run_command("components.corpus", "compilers", "--output", directory / "oz")
    assert done.returncode == 0, done.stderr
    project = write_project(directory / "project")
    make(project, directory / "oz" / "clang")
    extract(database(project, directory / "oz"), directory / "corpus")
    return directory


def extract(compile_commands: Path, output: Path) -> None:
    done = run_command("components.corpus", "extract", "--compile-commands", compile_commands, "--output", output)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def relinked(own: Path, pretrained_release: Path, tmp_path_factory: pytest.TempPathFactory) -> WholeProjects:
    return compare(own, pretrained_release, tmp_path_factory.mktemp("work") / "work")


@pytest.fixture(scope="module")
def from_source(
    pretrained_release: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, list[SectionSizes]]]:
    """Sizes of each program by stock clang and by the release clang, built from source with the same flags."""
    sizes: dict[str, list[SectionSizes]] = {name: [] for name in PROGRAMS}
    for clang in (Path("/usr/bin/clang-19"), pretrained_release / "bin" / "clang"):
        # In the same place: the paths of sources are in no file that is linked, but names of modules are in bitcode.
        project = write_project(tmp_path_factory.mktemp("source") / "project")
        wrappers = project.parent / "wrappers"
        wrappers.mkdir()
        for name in ("clang", "clang++"):
            program = clang.with_name(clang.name.replace("clang", name))
            (wrappers / name).write_text(f'#!/bin/sh\nexec {program} "$@" -Oz -Qunused-arguments\n')
            (wrappers / name).chmod(0o755)
        make(project, wrappers / "clang")
        for name in PROGRAMS:
            sizes[name].append(measure(project / name).sizes)
    yield sizes


@pytest.mark.toolchain
@pytest.mark.parametrize("name", PROGRAMS)
def test_linked_files_have_the_sizes_of_a_build_from_source_by_either_clang(
    relinked: WholeProjects, from_source: dict[str, list[SectionSizes]], name: str
) -> None:
    (binary,) = (binary for binary in relinked.binaries.binaries if binary.name == name)
    assert [binary.stock, binary.policy] == from_source[name]
    assert binary.policy.text < binary.stock.text
    assert binary.link_variant == ("full LTO" if name.endswith("full") else "default")


@pytest.mark.toolchain
def test_lto_and_its_linkers_are_named(relinked: WholeProjects) -> None:
    build = relinked.own_build
    assert build is not None and (build.need, build.left_out, build.kept) == ("", {}, {})
    assert (build.thin_lto, build.full_lto, build.two_linkers, build.as_built) == (2, 2, 2, 2)


@pytest.mark.toolchain
def test_full_lto_does_not_count_for_the_verdict(relinked: WholeProjects, measured: Measurements) -> None:
    full = [binary for binary in relinked.binaries.linked if binary == "full LTO"]
    assert full and set(relinked.binaries.linked) == {"default", "full LTO"}
    del relinked.binaries.linked["default"]
    metrics = summarize(measured, 0.3, relinked)
    assert isinstance(metrics, SizeMetrics)
    judge_whole_projects(metrics, None)
    assert metrics.judged_by == "modules"
    assert "full LTO" in terminal_report.markdown(metrics)


@pytest.mark.toolchain
def test_what_stays_as_built_is_named_with_its_need(own: Path, pretrained_release: Path, tmp_path: Path) -> None:
    project, build = tmp_path / "own" / "project", tmp_path / "own"
    build.mkdir()
    write_project(project)
    make(project, own / "oz" / "clang", "plain/main.o", "plain/table.o", "plain/words.o", "native.o")
    run = {"check": True, "cwd": project, "capture_output": True}
    subprocess.run(["/usr/bin/ld", "-r", "plain/table.o", "native.o", "-o", "part.o"], **run)  # type: ignore[call-overload]
    for name, flags in {"lto": ["-flto"], "gcc": []}.items():
        (project / f"{name}.c").write_text(f"int {name}(void) {{ return 1; }}\n")
        subprocess.run(["clang-19", *flags, "-c", f"{name}.c"], **run)  # type: ignore[call-overload]
    (project / "other.c").write_text("int other(void) { return 1; }\n")
    for words in (
        ["clang", "-c", "other.c"],
        ["clang++", "-flto", "-fuse-ld=lld", "plain/main.o", "plain/words.o", "part.o", "lto.o", "gcc.o", "other.o"],
    ):
        subprocess.run([own / "oz" / words[0], *words[1:]], **run)  # type: ignore[call-overload]
    extract(database(project, own / "oz"), build / "corpus")
    whole = compare(build, pretrained_release, tmp_path / "work")
    assert whole.own_build is not None
    names = {reason: kept.names for reason, kept in whole.own_build.kept.items()}
    assert names == {JOINED: ["part.o"], LTO_BITCODE: ["lto.o"], NO_BITCODE: ["gcc.o"], NOT_IN_CORPUS: ["other.o"]}
    assert whole.own_build.kept_objects == 4


@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("option", "lto", "reason"),
    [
        ("-funified-lto", {}, "-funified-lto is not replayed: build with -flto or -flto=thin alone"),
        ("-Wl,--thinlto-index-only", {}, "--thinlto-index-only is not replayed"),
        ("", None, "extract the corpus by --compile-commands"),
        ("-fno-lto", {}, "link with -flto, too"),
        ("", {"native.o": "mixed"}, "native.o is compiled for several kinds of LTO"),
    ],
)
def test_lto_that_is_not_replayed_says_what_it_needs(
    own: Path, pretrained_release: Path, tmp_path: Path, option: str, lto: dict[str, str] | None, reason: str
) -> None:
    document = json.loads((own / "corpus" / "links.json").read_text())
    document["links"] = [link for link in document["links"] if link["output"].endswith("/lld-thin")]
    document["links"][0]["arguments"] += [option] if option else []
    if lto is None:
        del document["lto"]
    else:
        document["lto"].update(lto)
    whole = compare(with_links(own, document, tmp_path / "own"), pretrained_release, tmp_path / "work")
    assert whole.own_build is not None and reason in whole.own_build.left_out["lld-thin"]
    assert reason in whole.own_build.need


@pytest.mark.toolchain
def test_relink_no_links_nothing(own: Path, pretrained_release: Path, tmp_path: Path) -> None:
    whole = compare(own, pretrained_release, tmp_path / "work", relink="no")
    assert whole.own_build is None and not whole.binaries.binaries and not (tmp_path / "work").exists()
