"""A training clang that others built: LLVM's own development mode, with TensorFlow Lite."""

from __future__ import annotations

import dataclasses
import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from components.core import problems
from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import CompileError, Compiler, Request
from components.core.compiler.development_mode.upstream import UpstreamCompiler, compiler_for
from components.core.formats.corpus import Corpus, Module
from components.core.formats.toolchain import FILE_NAME, Toolchain, digest_of_clang, load_toolchain
from components.core.policy.export import export_fast
from components.core.policy.pretrained import pretrained_policy
from components.core.policy.tf.saved_model import write_saved_model
from components.platform.errors import UserError
from components.toolchain.config import ToolchainConfig
from components.toolchain.make import make_toolchain
from tests.components.toolchain.conftest import random_upstream_policy

pytestmark = pytest.mark.toolchain

STOCK = "/usr/lib/llvm-19/bin/clang"


@pytest.fixture(scope="module")
def external(upstream_clang: Path, tmp_path_factory: pytest.TempPathFactory) -> Toolchain:
    output = tmp_path_factory.mktemp("external") / "training"
    return make_toolchain(ToolchainConfig("training", output, "external", clang=str(upstream_clang)))


@pytest.fixture(scope="module")
def policy(training_toolchain: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random policy of LLVM's features, in the forms that the two kinds of training clangs load."""
    directory = tmp_path_factory.mktemp("policy")
    toolchain = load_toolchain(training_toolchain)
    dense = random_upstream_policy(toolchain)
    export_fast(dense, directory, toolchain.clang)
    write_saved_model(dense, directory)
    return directory


def test_capabilities_are_recorded(external: Toolchain, upstream_clang: Path) -> None:
    assert external.capabilities == frozenset() and external.built["clang"] == str(upstream_clang)
    assert set(external.features) == set(problems.names())
    for name, specs in external.features.items():
        assert {spec.name for spec in specs} == set(external.upstream_features[name])
    with pytest.raises(UserError, match="forced decisions"):
        external.require_capability("forced_decisions", "a plan")


@pytest.fixture
def module(tiny_corpus: Corpus) -> Module:
    (module,) = (module for module in tiny_corpus if module.name == "lib/strings.cpp.o")
    return module


@pytest.mark.timeout(300)
def test_policy_decides_as_in_our_training_clang(
    external: Toolchain, training_toolchain: Path, policy: Path, module: Module
) -> None:
    """LLVM's own code reads model.tflite and output_spec.json; the decisions are those of policy.so."""
    ours = Compiler(load_toolchain(training_toolchain).clang, "inlining")
    theirs = compiler_for(external, "inlining", 60)
    assert type(theirs) is UpstreamCompiler
    for advisor in (Advisor("log"), Advisor("policy", policy=policy, log=True)):
        (expected,), (sample,) = ours(Request(module, advisor)).samples, theirs(Request(module, advisor)).samples
        assert sample.text_size_bytes == expected.text_size_bytes and sample.callsites is None
        (context,), (other,) = sample.log.contexts, expected.log.contexts
        assert len(context) > 20 and set(context.columns) <= set(other.columns)
        for name, column in context.columns.items():
            if column.dtype.kind == "i":
                assert (column == other.columns[name]).all(), name


def test_samples_are_reproducible_and_have_the_log_of_a_training_clang(
    external: Toolchain, policy: Path, module: Module
) -> None:
    compiler = compiler_for(external, "inlining", 60)
    request = Request(module, Advisor("policy", policy=policy, seed=3, samples=2, log=True), want_functions=True)
    first, again = compiler(request).samples, compiler(request).samples
    problem = problems.get("inlining").policy
    for sample, repeated in zip(first, again, strict=True):
        (context,), (same,) = sample.log.contexts, repeated.log.contexts
        assert (context.columns[problem.decision] == same.columns[problem.decision]).all()
        assert context.columns[problem.logits].shape == (len(context), 1, 2)
        assert sample.text_size_bytes == repeated.text_size_bytes > 0 and sample.function_sizes
    actions = [sample.log.contexts[0].columns[problem.decision].ravel().tolist() for sample in first]
    assert actions[0] != actions[1]


def test_module_that_does_not_compile_is_an_error_of_the_module(external: Toolchain, policy: Path, module) -> None:
    request = Request(module, Advisor("policy", policy=policy, seed=3, samples=2, log=True), extra_flags=("-nonsense",))
    with pytest.raises(CompileError, match=r"failed: .*nonsense") as caught:
        compiler_for(external, "inlining", 60)(request)
    assert caught.value.reason == "failed"


def test_exhausted_disk_space_is_no_error_of_the_module(
    fragile_clang: Path, clang: Path, make_corpus: Callable[..., Corpus], tmp_path: Path
) -> None:
    policy = pretrained_policy("inlining", clang=clang)
    (module,) = make_corpus(tmp_path / "c", {"p/full.c": "int leaf(int x) { return x * 3 + 1; }\n"})
    request = Request(module, Advisor("policy", policy=policy, seed=3, samples=2, log=True))
    with pytest.raises(OSError) as caught:
        UpstreamCompiler(fragile_clang, "inlining")(request)
    assert caught.value.errno == errno.ENOSPC and caught.value.filename


def test_policy_without_its_tflite_form_is_refused(
    external: Toolchain, policy: Path, module: Module, tmp_path: Path
) -> None:
    (tmp_path / "output_spec.json").write_bytes((policy / "output_spec.json").read_bytes())
    with pytest.raises(UserError, match=r"model\.tflite"):
        compiler_for(external, "inlining", 60)(Request(module, Advisor("policy", policy=tmp_path)))


def test_scores_of_register_allocation_are_those_of_our_training_clang(
    external: Toolchain, training_toolchain: Path, pressed_corpus: Corpus
) -> None:
    (module,) = (module for module in pressed_corpus if module.name == "app/pressed.c.o")
    (sample,) = compiler_for(external, "regalloc", 60)(Request(module, Advisor("log"))).samples
    assert set(sample.scores) == {"mix", "calls"}, "and not calm, which has no decision"
    (ours,) = Compiler(load_toolchain(training_toolchain).clang, "regalloc")(Request(module, Advisor("log"))).samples
    assert sample.scores == ours.scores


SILENT = """#!/bin/sh
case "$*" in *--version*) exec {stock} --version;; esac
exec {stock} -x c++ -c /dev/null -o /dev/null
"""


@pytest.mark.parametrize(
    ("clang", "major", "said"),
    [
        (STOCK, 19, "not a clang of LLVM's development mode for inlining: it has no option -training-log"),
        (STOCK, 22, "is clang 19.1.7, but LLVM 22 was requested"),
        ("/bin/true", 19, "is no clang"),
        ("/nowhere", 19, "not a program"),
        ("silent", 19, "logs no decisions of inlining: .* wrote no training log"),
    ],
)
def test_other_programs_are_refused(tmp_path: Path, clang: str, major: int, said: str) -> None:
    if clang == "silent":
        path = tmp_path / "clang"
        path.write_text(SILENT.format(stock=STOCK))
        path.chmod(0o755)
        clang = str(path)
    with pytest.raises(UserError, match=said):
        make_toolchain(ToolchainConfig("training", tmp_path / "out", "external", major, clang))


def test_problem_that_is_not_logged_is_refused(tmp_path: Path, upstream_clang: Path) -> None:
    clang = tmp_path / "clang"
    clang.write_text(f'#!/bin/sh\ncase "$*" in *-regalloc-training*) exit 1;; esac\nexec {upstream_clang} "$@"\n')
    clang.chmod(0o755)
    config = ToolchainConfig("training", tmp_path / "out", "external", clang=str(clang))
    assert set(make_toolchain(config).features) == {"inlining"}
    with pytest.raises(UserError, match="regalloc"):
        make_toolchain(dataclasses.replace(config, problem="regalloc"))


def test_training_clang_of_ours_is_refused(tmp_path: Path, training_toolchain: Path) -> None:
    clang = str(training_toolchain / "bin" / "clang")
    with pytest.raises(UserError, match="training clang"):
        make_toolchain(ToolchainConfig("training", tmp_path / "out", "external", clang=clang))


def test_release_clang_is_built_by_a_strategy_of_its_own() -> None:
    policies = (Path("policy"),)
    for major, strategy in ((19, "sdk"), (22, "plugin")):
        assert ToolchainConfig("release", Path("out"), "external", major, policies=policies).strategy == strategy
    for wrong in (("external", ""), ("sdk", STOCK)):
        with pytest.raises(UserError) as caught:
            ToolchainConfig("training", Path("out"), wrong[0], clang=wrong[1])  # type: ignore[arg-type]
        assert "--clang PATH" in caught.value.remedy


def test_changed_clang_is_refused(external: Toolchain, tmp_path: Path) -> None:
    clang = tmp_path / "clang"
    shutil.copyfile("/bin/true", clang)
    shutil.copytree(external.directory, tmp_path / "training", symlinks=True)
    path = tmp_path / "training" / FILE_NAME
    document = json.loads(path.read_text())
    document["built"] |= {"clang": str(clang), "clang_sha256": digest_of_clang(clang)}
    path.write_text(json.dumps(document))
    assert load_toolchain(tmp_path / "training").built["clang"] == str(clang)
    shutil.copyfile("/bin/false", clang)
    with pytest.raises(UserError, match="changed"):
        load_toolchain(tmp_path / "training")


def test_digest_of_a_clang_covers_its_libraries(tmp_path: Path) -> None:
    """Debian's clang is a small program that loads libclang-cpp.so and libLLVM.so."""
    clang = tmp_path / "bin" / "clang"
    clang.parent.mkdir()
    shutil.copyfile(STOCK, clang)
    clang.chmod(0o755)
    before = digest_of_clang(clang)
    (tmp_path / "lib").mkdir()
    (library,) = Path("/usr/lib/llvm-19/lib").glob("libclang-cpp.so.19.1")
    shutil.copyfile(library, tmp_path / "lib" / library.name)  # the program looks in ../lib first
    assert digest_of_clang(clang) == before
    with open(tmp_path / "lib" / library.name, "ab") as stream:
        stream.write(b"rebuilt")
    assert digest_of_clang(clang) != before
