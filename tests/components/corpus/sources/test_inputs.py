"""All kinds of input give the same files as mlgo-utils' extract_ir, byte for byte, with and without ThinLTO."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from components.core.formats.corpus import UNSPECIFIED_OVERRIDE, load_corpus
from components.platform.storage import verify
from tests.components.corpus.mlgo_utils import extract_ir, files, sort_modules
from tests.support.commands import run_command

ROOT = Path(__file__).parents[4]
ONLY_OURS = ("manifest.json", "report.json", "splits.json", "links.json")


def extract(output: Path, *flags: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    return run_command("components.corpus", "extract", "--output", output, *flags, cwd=cwd, env=environment)


def our_files(corpus: Path) -> dict[str, bytes]:
    return {name: content for name, content in files(corpus).items() if name not in ONLY_OURS}


def extract_with_both(tmp_path: Path, *flags: object, cwd: Path = ROOT) -> list[str]:
    """Extract with both tools, compare, and return the names of the modules."""
    run = extract(tmp_path / "ours", *flags, cwd=cwd)
    assert run.returncode == 0, run.stderr
    extract_ir(tmp_path / "theirs", *flags, cwd=cwd)
    if {"directory", "local"} & set(flags):
        sort_modules(tmp_path / "theirs")
    assert our_files(tmp_path / "ours") == our_files(tmp_path / "theirs")
    verify(tmp_path / "ours")
    return [module.name for module in load_corpus(tmp_path / "ours")]


def aquery(path: Path, *links: list[str]) -> Path:
    """Write the output of `bazel aquery --output=jsonproto` for a target, an ActionGraphContainer."""
    compile_action = {"targetId": 1, "actionKey": "a", "mnemonic": "CppCompile", "arguments": ["clang", "-o", "x.o"]}
    actions = [{"targetId": 1, "actionKey": "b", "mnemonic": "CppLink", "arguments": link} for link in links]
    path.write_text(json.dumps({"artifacts": [], "actions": [compile_action, *actions], "targets": []}))
    return path


def flags_of(kind: str, build: Path, tmp_path: Path) -> list[object]:
    link = (build / "link.params").read_text().splitlines()
    if kind == "json":
        return ["--input", build / "compile_commands.json"]
    if kind == "directory":
        return ["--input", build, "--input-type", kind]
    source = build / "link.params"
    if kind == "bazel_aquery":
        library, program = ["clang", "-shared", "-o", "lib.so", "gone.o"], ["clang", *map(str.strip, link)]
        source = aquery(tmp_path / "aquery.json", library, program)
    return ["--input", source, "--input-type", kind, "--obj-base-dir", build]


@pytest.fixture
def plain(build: Path, tmp_path: Path) -> Path:
    """Return the build without ThinLTO, with a params file that also names missing and empty files and non-objects."""
    objects = [f"obj/{name}.o" for name in ("src/one.c", "lib/three.c", "lib/plain.c", "lib/unbuilt.c", "lib/empty.c")]
    lines = ["--gc-sections", "  obj/src/two.cc.o  ", *objects, "-lc", "-o", "obj/program.o", "libz.a", "-L", "obj"]
    (build / "link.params").write_text("\n".join(lines))
    return build


@pytest.mark.parametrize("kind", ["json", "params", "directory", "bazel_aquery"])
def test_each_kind_of_input(kind: str, plain: Path, tmp_path: Path) -> None:
    names = extract_with_both(tmp_path, *flags_of(kind, plain, tmp_path))
    assert sorted(names) == ["obj/lib/three.c.o", "obj/src/one.c.o", "obj/src/two.cc.o"]


def test_params_paths_are_relative_to_the_working_directory_by_default(plain: Path, tmp_path: Path) -> None:
    assert len(extract_with_both(tmp_path, "--input", "link.params", "--input-type", "params", cwd=plain)) == 3


def test_params_file_without_output_is_a_list_of_objects(plain: Path, tmp_path: Path) -> None:
    """A params file without -o is a list of objects, which may have any suffix."""
    (tmp_path / "odd").write_bytes((plain / "obj/src/one.c.o").read_bytes())
    (tmp_path / "list").write_text("odd\n\ngone.o\n-lc\n")
    assert extract_with_both(
        tmp_path, "--input", tmp_path / "list", "--input-type", "params", "--obj-base-dir", tmp_path
    ) == ["odd"]


@pytest.mark.parametrize("kind", ["json", "params", "directory", "bazel_aquery"])
def test_each_kind_of_input_with_distributed_thinlto(kind: str, distributed: Path, tmp_path: Path) -> None:
    for folder in ("thin", "plain"):
        assert (distributed / folder / "lib/leaf.c.o").exists(), "the directory has objects that must be skipped"
    names = extract_with_both(tmp_path, *flags_of(kind, distributed, tmp_path), "--thinlto-build", "distributed")
    assert sorted(names) == ["obj/app/main.cc.o", "obj/lib/helper.c.o", "obj/lib/leaf.c.o", "obj/lib/name.cc.o"]
    index = (tmp_path / "ours/obj/lib/helper.c.o.thinlto.bc").read_bytes()
    assert index == (distributed / "thin/lib/helper.c.o.thinlto.bc").read_bytes()


def test_undeclared_thinlto_build_is_reported(distributed: Path, tmp_path: Path) -> None:
    flags = flags_of("params", distributed, tmp_path)
    assert len(extract_with_both(tmp_path, *flags)) == 4
    assert "-fthinlto-index=" in extract(tmp_path / "c", *flags).stdout
    for how in flags_of("json", distributed, tmp_path), [*flags, "--thinlto-build", "distributed"]:
        run = extract(tmp_path / "c", *how)
        assert run.returncode == 0 and ("pass --thinlto-build" in run.stdout) == ("--thinlto-build" not in how)


@pytest.mark.parametrize(
    ("cmd_filter", "names"),
    [
        ("^-O2|-O3$", ["app/main.cc", "lib/helper.c", "lib/name.cc"]),
        ("^-O3$", ["lib/helper.c"]),
        ("leaf.c|-O3$", ["lib/helper.c", "lib/leaf.c"]),
    ],
)
def test_cmd_filter_selects_optimization_levels(
    cmd_filter: str, names: list[str], distributed: Path, tmp_path: Path
) -> None:
    flags = [*flags_of("params", distributed, tmp_path), "--thinlto-build", "distributed", "--cmd-filter", cmd_filter]
    assert extract_with_both(tmp_path, *flags) == [f"obj/{name}.o" for name in names]


def test_filter_that_matches_nothing_is_an_error(distributed: Path, tmp_path: Path) -> None:
    flags = flags_of("params", distributed, tmp_path)
    run = extract(tmp_path / "ours", *flags, "--thinlto-build", "distributed", "--cmd-filter", "O$")
    assert run.returncode == 1 and "4 filtered out" in run.stderr and "another --cmd-filter" in run.stderr
    assert "level is" in run.stderr and "regalloc ^-O[23]$" in run.stderr


def test_local_thinlto(local: Path, tmp_path: Path) -> None:
    names = extract_with_both(tmp_path, "--thinlto-build", "local", "--obj-base-dir", local)
    assert len(names) == 4 and any("lib/leaf.a(leaf.c.o at" in name for name in names)
    description = json.loads((tmp_path / "ours/corpus_description.json").read_text())
    assert description["global_command_override"] == [UNSPECIFIED_OVERRIDE]
    run = extract(tmp_path / "here", "--thinlto-build", "local", cwd=local)
    assert run.returncode == 0 and our_files(tmp_path / "here") == our_files(tmp_path / "ours")
    run = extract(tmp_path / "named", "--thinlto-build", "local", "--input", local, "--input-type", "directory")
    assert run.returncode == 0 and our_files(tmp_path / "named") == our_files(tmp_path / "ours")


def test_saved_module_without_index_is_skipped(local: Path, tmp_path: Path) -> None:
    for path in (local / "obj/lib").glob("*.bc"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "name.cc.o.thinlto.bc").unlink()
    names = extract_with_both(tmp_path, "--thinlto-build", "local", "--obj-base-dir", tmp_path)
    assert len(names) == 2 and "name.cc.o" not in names
    report = json.loads((tmp_path / "ours/report.json").read_text())
    assert [(item["object"], item["kind"]) for item in report["left_out"]] == [(f"{tmp_path}/name.cc.o", "no_index")]


def test_objects_without_thinlto_index_are_reported_and_skipped(build: Path, distributed: Path, tmp_path: Path) -> None:
    """mlgo-utils fails with a traceback on these, and writes outside of its output directory for the last one."""
    lost = tmp_path / "lost.o"
    source = (distributed / "obj/lib/leaf.c.o").read_bytes()
    lost.write_bytes(source.replace(b"-fthinlto-index=thin/", b"-fthinlto-index=gone/"))
    assert lost.read_bytes() != source
    good = "obj/lib/name.cc.o"
    (tmp_path / "good.o").write_bytes((distributed / good).read_bytes())
    (tmp_path / "thin").symlink_to(distributed / "thin")
    (tmp_path / "one.o").write_bytes((build / "obj/src/one.c.o").read_bytes())
    (tmp_path / "p").write_text(f"-o\nprogram\ngood.o\none.o\nlost.o\n{distributed}/{good}\n../up.o\n")
    flags = ["--input", tmp_path / "p", "--input-type", "params", "--obj-base-dir", tmp_path]
    run = extract(tmp_path / "c", *flags, "--thinlto-build", "distributed")
    assert run.returncode == 0, run.stderr
    assert [module.name for module in load_corpus(tmp_path / "c")] == ["good.o"]
    left = {item["object"]: item for item in json.loads((tmp_path / "c/report.json").read_text())["left_out"]}
    assert left[f"{tmp_path}/one.o"]["detail"] == "compiled without -fthinlto-index="
    assert "gone/lib/leaf.c.o.thinlto.bc" in left[f"{tmp_path}/lost.o"]["detail"]
    assert left[f"{distributed}/{good}"]["kind"] == left["../up.o"]["kind"] == "outside"
    assert not list(distributed.rglob("*.cmd"))
