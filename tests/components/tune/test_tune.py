"""The search for a plan, killed and resumed, on real modules."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import Compiler, Request
from components.core.formats.corpus import Corpus
from components.core.policy.pretrained import pretrained_policy
from components.platform.storage import digest, publish
from components.platform.storage.object_storage.fetch import fetch
from components.platform.storage.uri import ObjectUri
from tests.components.conftest import SOURCES
from tests.support.buckets import names
from tests.support.commands import run_command

pytestmark = [pytest.mark.toolchain, pytest.mark.timeout(600)]

CPP = """#include <map>
#include <string>
#include <vector>
static std::map<std::string, std::vector<int>> store;
void add{i}(const std::string &key, int value) {{ store[key].push_back(value + {i}); }}
int sum{i}(const std::string &key) {{ int s = {i}; for (int v : store[key]) s += v; return s; }}
void clear{i}(const std::string &key) {{ store.erase(key + "{i}"); }}
"""

C = SOURCES["app/tree.c"]


@pytest.fixture(scope="module")
def program(make_corpus: Callable[..., Corpus], tmp_path_factory: pytest.TempPathFactory) -> Path:
    sources = {"app/m.cpp": CPP.format(i=0), "app/tree.c": C, "app/empty.c": "int nothing;\n"}
    return make_corpus(tmp_path_factory.mktemp("program") / "corpus", sources).directory


def start(*options: object, environment: Mapping[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "components.tune", *map(str, options)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )


def tune(*options: object) -> subprocess.CompletedProcess[str]:
    return run_command("components.tune", *options, timeout=900)


def test_plan_is_smaller_than_policy(
    program: Path, training_toolchain: Path, pretrained_release: Path, tmp_path: Path
) -> None:
    inputs = ("--corpus", program, "--toolchain", training_toolchain, "--size-of", "modules", "--minutes", 0.5)
    done = tune(*inputs, "--release-toolchain", pretrained_release, "--output", tmp_path / "plan")
    assert done.returncode == 0, done.stderr
    assert "embeds another policy" not in done.stderr + done.stdout
    figures = json.loads((tmp_path / "plan" / "tune.json").read_text())
    assert figures["modules"] == 3 and figures["rounds"] >= 3
    assert figures["plan_bytes"] < figures["policy_bytes"] < figures["heuristic_bytes"]
    assert figures["release_as_found"] == figures["release_identical_twice"] == figures["release_modules"] == 3
    with (tmp_path / "plan" / "modules.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert sum(int(row["plan_bytes"]) for row in rows) == figures["plan_bytes"]
    assert all(int(row["plan_bytes"]) <= int(row["policy_bytes"]) for row in rows)
    assert f"-mlgo-inline-plan={tmp_path / 'plan' / 'inline.plan'}" in done.stdout


def test_plan_is_published_only_if_the_linked_program_is_smaller_than_stock_clangs(
    make_corpus: Callable[..., Corpus], training_toolchain: Path, pretrained_release: Path, tmp_path: Path
) -> None:
    sources = {f"m{i}.cpp": CPP.format(i=i) for i in range(4)}
    corpus = make_corpus(tmp_path / "corpus", sources)
    tree = tmp_path / "tree"
    tree.mkdir()
    calls = "".join(f"  add{i}(argv[0], argc); sum += sum{i}(argv[0]); clear{i}(argv[0]);\n" for i in range(4))
    functions = "".join(
        f"void add{i}(const std::string &, int); int sum{i}(const std::string &); void clear{i}(const std::string &);\n"
        for i in range(4)
    )
    main = (
        f"#include <string>\n{functions}int main(int argc, char **argv) {{\n  int sum = 0;\n{calls}  return !sum;\n}}\n"
    )
    for name, text in {**sources, "main.cpp": f"#include <string>\n{functions}{main}"}.items():
        (tree / name).write_text(text)
    toolchains = ("--toolchain", training_toolchain, "--release-toolchain", pretrained_release)
    inputs = ("--corpus", corpus.directory, *toolchains)
    program = ("--source", tree, "--program", "app", "--row", "layout", "--minutes", 0.3, "--output", tmp_path / "plan")
    refused = tune(*inputs, *program, "--build", "/usr/bin/clang++-19 -Oz *.cpp -o app; $CXX -c main.cpp -o unused.o")
    assert refused.returncode == 1, refused.stdout
    assert "tree/app" in refused.stderr and "(layout)" in refused.stderr
    assert not (tmp_path / "plan").exists() and (tmp_path / "plan-search").is_dir()
    # What is not called stays in a program that exports its functions.
    done = tune(
        *inputs, *program, "--build", "for f in *.cpp; do $CXX -c $f; done; $CXX *.o -o app -Wl,--no-gc-sections"
    )
    assert done.returncode == 0, done.stderr
    compared = json.loads((tmp_path / "plan" / "tune.json").read_text())["linked"]
    (linked,), (project,) = compared["programs"], compared["projects"]
    assert f"-mlgo-inline-plan={tmp_path / 'plan' / 'inline.plan'}" in project["build"]
    sizes = {result["compiler"]: result["sizes"]["stripped"] for result in linked["results"]}
    assert sizes["plan"] < sizes["stock"] and sizes["plan"] < sizes["policy"]
    assert f"(layout), {sizes['stock']:,} by stock clang" in done.stdout
    assert "no program was linked" not in done.stdout and not (tmp_path / "plan" / "build").exists()


def test_programs_that_cannot_be_compared_are_refused_before_the_search(
    program: Path, training_toolchain: Path, pretrained_release: Path, tmp_path: Path
) -> None:
    """A program that is compiled as one module takes no plan, and linking needs a release clang."""
    inputs = ("--corpus", program, "--toolchain", training_toolchain, "--release-toolchain", pretrained_release)
    row = ("--build", "true", "--source", tmp_path, "--program", "app", "--row", "lto-outliner,program")
    refused = tune(*inputs, *row, "--output", tmp_path / "plan")
    assert refused.returncode == 1
    assert "lto-outliner, program" in refused.stderr
    refused = tune(*inputs[:4], *row[:-2], "--output", tmp_path / "plan")
    assert refused.returncode == 1 and "--release-toolchain" in refused.stderr
    assert not (tmp_path / "plan-search").exists()


def test_totals_are_those_of_the_program_if_the_time_limit_leaves_modules_out(
    make_corpus: Callable[..., Corpus], training_toolchain: Path, tmp_path: Path
) -> None:
    """The plan lists the modules that were reached; the others keep the policy's decisions, and count with these."""
    corpus = make_corpus(tmp_path / "corpus", {f"app/m{i}.cpp": CPP.format(i=i) for i in range(5)})
    inputs = ("--corpus", corpus.directory, "--toolchain", training_toolchain, "--size-of", "modules")
    done = tune(*inputs, "--minutes", 1e-4, "--output", tmp_path / "plan")
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "plan" / "tune.json").read_text())
    assert 0 < figures["modules"] == 5 - figures["unreached_modules"] < 5
    clang = training_toolchain / "bin" / "clang"
    policy = pretrained_policy("inlining", clang=clang)
    compiler = Compiler(clang, "inlining")
    for side, advisor in (("heuristic", Advisor("default")), ("policy", Advisor("policy", policy=policy))):
        sizes = [compiler(Request(module, advisor)).samples[0].text_size_bytes for module in corpus.modules]
        assert figures[f"{side}_bytes"] == sum(sizes)
    with (tmp_path / "plan" / "modules.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 5 and sum(int(row["plan_bytes"]) for row in rows) == figures["plan_bytes"]
    assert all(row["plan_bytes"] == row["policy_bytes"] for row in rows if row["rounds"] == "0")
    reached = sum(int(row["heuristic_bytes"]) for row in rows if row["rounds"] != "0")
    assert reached == figures["planned_heuristic_bytes"]
    assert "text of 5 modules:" in done.stdout and f"lists {figures['modules']} of 5 modules" in done.stdout


def test_program_without_text_has_no_reduction(
    make_corpus: Callable[..., Corpus], training_toolchain: Path, tmp_path: Path
) -> None:
    corpus = make_corpus(tmp_path / "corpus", {"app/empty.c": "int nothing;\n"}).directory
    done = tune("--corpus", corpus, "--toolchain", training_toolchain, "--minutes", 0.1, "--output", tmp_path / "plan")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "plan" / "tune.json").read_text())["plan_reduction_percent"] is None


def test_function_of_two_modules_counts_by_the_share_that_the_link_keeps(
    make_corpus: Callable[..., Corpus], training_toolchain: Path, tmp_path: Path
) -> None:
    common = (
        "extern int put(int);\n__attribute__((noinline)) inline int common(int x) { return put(x) + put(x + 1); }\n"
    )
    sources = {f"app/m{i}.cpp": f"{common}int root{i}(int x) {{ return common(x) * {i + 3}; }}\n" for i in range(2)}
    corpus = make_corpus(tmp_path / "corpus", sources).directory
    done = tune("--corpus", corpus, "--toolchain", training_toolchain, "--minutes", 0.5, "--output", tmp_path / "plan")
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "plan" / "tune.json").read_text())
    with (tmp_path / "plan" / "modules.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    for side in ("heuristic", "policy", "plan"):
        linked = [int(row[f"{side}_linked_bytes"]) for row in rows]
        assert 0 < sum(linked) < figures[f"{side}_bytes"]
        assert abs(sum(linked) - figures[f"{side}_linked_bytes"]) <= len(rows), "each row is rounded"
    assert "the share" in done.stdout


def test_killed_search_resumes(make_corpus: Callable[..., Corpus], training_toolchain: Path, tmp_path: Path) -> None:
    sources = {f"app/tree{i}.c": C.replace("* 3", f"* {3 + i}") for i in range(4)}
    little = make_corpus(tmp_path / "little" / "corpus", sources).directory
    inputs = ("--corpus", little, "--toolchain", training_toolchain, "--root-dir", tmp_path / "root")
    words = [sys.executable, "-m", "components.tune", *map(str, inputs), "--output", str(tmp_path / "plan")]
    root = tmp_path / "root"
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, start_new_session=True)
    while not list(root.glob("*/modules/*.json")):
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "plan").exists()
    rounds = sum(json.loads(path.read_text())["rounds"] for path in root.glob("*/modules/*.json"))
    assert tune(*inputs, "--output", tmp_path / "plan").returncode == 0
    assert tune(*inputs[:4], "--output", tmp_path / "again").returncode == 0
    resumed, whole = (json.loads((tmp_path / name / "tune.json").read_text()) for name in ("plan", "again"))
    assert rounds > 0 and resumed == whole
    assert whole["modules"] == whole["finished_modules"] == 4, "little programs are searched to the end"
    for side in ("heuristic", "policy", "plan"):
        assert whole[f"{side}_linked_bytes"] == whole[f"{side}_bytes"], "no two modules define the same function"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "again-search", "little", "plan", "root"]
    # Nothing is left to be found: the same command ends at once, with the same plan.
    first = digest(tmp_path / "plan")
    assert tune(*inputs, "--output", tmp_path / "plan").returncode == 0
    assert digest(tmp_path / "plan") == first


def test_interrupted_search_continues_on_another_machine(
    make_corpus: Callable[..., Corpus],
    training_toolchain: Path,
    tmp_path: Path,
    gs_uri: ObjectUri,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sources = {f"app/tree{i}.c": C.replace("* 3", f"* {3 + i}") for i in range(4)}
    inputs = ("--corpus", make_corpus(tmp_path / "corpus", sources).directory, "--toolchain", training_toolchain)
    one, two = tmp_path / "one", tmp_path / "two"
    in_bucket = (*inputs, "--root-dir", gs_uri, "--output", tmp_path / "plan")
    first = start(*in_bucket, environment={"MLGO_CACHE_DIR": str(one)})
    while not (written := list(one.glob("gs/*/*/@/*/*/modules/*.json"))):
        assert first.poll() is None, first.communicate()
        time.sleep(0.01)
    first.send_signal(signal.SIGSTOP)
    monkeypatch.setenv("MLGO_CACHE_DIR", str(two))
    second = tune(*in_bucket)
    assert second.returncode == 1 and f"{gs_uri}/" in second.stderr, second.stderr
    first.send_signal(signal.SIGTERM)
    first.send_signal(signal.SIGCONT)
    said = first.communicate(timeout=300)
    assert first.returncode == 143 and "same command" in said[1], said
    measured = {path.name: json.loads(path.read_text()) for path in written[0].parent.glob("*.json")}
    assert not all(state["finished"] for state in measured.values()) or len(measured) < 4
    shutil.rmtree(one)
    published = fetch(gs_uri / search_of(gs_uri) / "state")
    assert {path.name: json.loads(path.read_text()) for path in published.glob("modules/*.json")} == measured
    resumed = tune(*in_bucket)
    assert resumed.returncode == 0, resumed.stderr
    assert f"{len(measured)}" in resumed.stdout
    assert tune(*inputs, "--output", tmp_path / "again").returncode == 0
    figures, whole = (json.loads((tmp_path / name / "tune.json").read_text()) for name in ("plan", "again"))
    assert figures == whole and whole["finished_modules"] == 4


def search_of(root: ObjectUri) -> str:
    """Return the name of the only search below a root directory in object storage."""
    (folder,) = {name.partition("/")[0] for name in names(root)}
    return folder


def test_failing_module_is_left_out_alone(
    make_corpus: Callable[..., Corpus], training_toolchain: Path, tmp_path: Path
) -> None:
    corpus = make_corpus(tmp_path / "corpus", {f"app/tree{i}.c": C.replace("* 3", f"* {3 + i}") for i in range(3)})

    def break_module(number: int) -> None:
        command = corpus.modules[number].cmd
        command.write_bytes(command.read_bytes().replace(b"-target-cpu\0x86-64", b"-target-cpu\0none-such"))

    break_module(0)
    (tmp_path / "corpus" / "manifest.json").unlink()
    inputs = ("--corpus", tmp_path / "corpus", "--toolchain", training_toolchain, "--output", tmp_path / "plan")
    done = tune(*inputs, "--minutes", 0.1)
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "plan" / "tune.json").read_text())
    assert figures["modules"] == 2 and len(figures["quarantine"]["modules"]) == 1
    assert figures["corpus_modules"] == 3 and figures["unreached_modules"] == 0
    break_module(1)
    done = tune(*inputs, "--minutes", 0.1)
    assert done.returncode == 1 and "2 of 3" in done.stderr


@pytest.mark.parametrize("refused", ["output", "policy", "root-dir", "corpus"])
def test_refused_search_leaves_no_directory(
    program: Path, training_toolchain: Path, tmp_path: Path, refused: str
) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "manifest.json").write_text("{}")
    (foreign / "precious").touch()
    options = {"corpus": program, "toolchain": training_toolchain, "output": tmp_path / "deep" / "plan"}
    options |= {"policy": pretrained_policy("inlining"), "root-dir": tmp_path / "deep" / "er"} | {refused: foreign}
    if refused == "root-dir":
        with publish(tmp_path / "trace", "trace"):
            pass
        options["root-dir"] = tmp_path / "trace" / "root"
    before = sorted(tmp_path.rglob("*"))
    done = tune(*(word for name, path in options.items() for word in (f"--{name}", path)), "--minutes", 0.1)
    assert done.returncode == 1 and done.stderr.startswith("error: ") and "remedy: " in done.stderr
    assert sorted(tmp_path.rglob("*")) == before
