"""Policies exported for an LLVM that users build: LLVM's own advisor compiles with the header, without TensorFlow."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from components.core import problems
from components.core.compiler.advisor import Advisor
from components.core.compiler.objects.elf import Elf
from components.core.formats.corpus import Corpus
from components.core.formats.policy import PolicyInfo, load_policy_info, write_policy_info
from components.core.formats.toolchain import FILE_NAME, load_toolchain
from components.core.policy.dense import DensePolicy, read_dense
from components.core.policy.export import export_fast
from components.core.policy.generated.native_policy import NativePolicy
from components.core.policy.generated.shared_object import link_shared_object
from components.core.policy.pretrained import pretrained_policy
from components.platform.errors import UserError
from components.platform.storage import publish
from components.platform.storage.cache import default_cache_dir
from components.platform.storage.downloads.debsource import download_deb_source
from components.policy.__main__ import main
from components.policy.llvm_build.export import CACHE_FILE, MODELS, TENSORFLOW_CACHE_FILE, TOSA_SUFFIX, export_for_llvm
from components.policy.llvm_build.tosa import tosa_module
from components.toolchain.build import build as link_clang
from components.toolchain.build import build_tree
from components.toolchain.sdk import find_sdk
from components.toolchain.source import fetch_source_files
from tests.components.toolchain.conftest import random_policy, random_upstream_policy

pytestmark = pytest.mark.toolchain

EXPORTS = """
#define EXPORTED extern "C" __attribute__((visibility("default")))
extern "C" const char *mlgo_inlining_describe(void);
extern "C" void mlgo_inlining_logits(const void *const *, float *);
EXPORTED const char *mlgo_policy_describe(void) { return mlgo_inlining_describe(); }
EXPORTED void mlgo_policy_logits(const void *const *in, float *out) { mlgo_inlining_logits(in, out); }
"""
STOCK = Path("/usr/lib/llvm-19/bin/clang")
# The lines of LLVM's lib/Analysis and lib/CodeGen that use the cache file, in a project without the rest of LLVM.
MODELS_PROJECT = """
cmake_minimum_required(VERSION 3.20)
project(models LANGUAGES CXX)
list(APPEND CMAKE_MODULE_PATH /usr/lib/llvm-19/lib/cmake/llvm)
include(TensorFlowCompile)
set(LLVM_HOST_TRIPLE x86_64-unknown-linux-gnu)
tf_find_and_compile("${LLVM_INLINER_MODEL_PATH}" <UNSPECIFIED> models/inliner-Oz no-mock.py serve action
                    InlinerSizeModel llvm::InlinerSizeModel)
tf_find_and_compile("${LLVM_RAEVICT_MODEL_PATH}" <UNSPECIFIED> models/regalloc-eviction no-mock.py serve action
                    RegAllocEvictModel llvm::RegAllocEvictModel)
add_custom_target(models ALL DEPENDS ${GeneratedMLSources})
"""


@pytest.fixture(scope="module")
def dense(training_toolchain: Path) -> DensePolicy:
    """A random policy of LLVM's own features."""
    return random_upstream_policy(load_toolchain(training_toolchain))


@pytest.fixture(scope="module")
def policy(dense: DensePolicy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("policy") / "policy"
    with publish(directory, "policy") as partial:
        dense.save(partial)
        write_policy_info(partial, PolicyInfo("inlining", dense.features, 2, trained_by="ppo"))
    return directory


@pytest.fixture(scope="module")
def exported(policy: Path, training_toolchain: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("export") / "for-llvm"
    without_tensorflow = "import sys; sys.modules['tensorflow'] = None; from components.policy.__main__ import main"
    command = [sys.executable, "-c", f"{without_tensorflow}; main()", "export", "--policy", str(policy)]
    command += ["--policy", "pretrained"]  # for register allocation
    done = subprocess.run(
        [*command, "--toolchain", str(training_toolchain), "--for-llvm", str(output)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert CACHE_FILE in done.stdout
    return output


def test_object_decides_like_the_policy_and_needs_no_run_time_library(
    exported: Path, dense: DensePolicy, tmp_path: Path
) -> None:
    symbols = subprocess.check_output(["nm", "-u", exported / MODELS / "InlinerSizeModel.o"], text=True)
    assert set(symbols.split()) <= {"U", "memcpy", "memset", "strcmp", "sqrtf", "log1pf"}
    (tmp_path / "exports.cpp").write_text(EXPORTS)
    library = link_shared_object(
        tmp_path / "policy.so", tmp_path / "exports.cpp", STOCK, [], [str(exported / MODELS / "InlinerSizeModel.o")]
    )
    rng = np.random.default_rng(0)
    columns = {f.name: rng.integers(0, 300, (500, 1)) for f in dense.features}
    logits = NativePolicy(library.parent).logits(columns)
    np.testing.assert_array_equal(logits.argmax(1), dense.logits(columns).argmax(1))


def test_export_has_the_policy_in_mlir(exported: Path, dense: DensePolicy) -> None:
    assert (exported / MODELS / f"InlinerSizeModel{TOSA_SUFFIX}").read_text() == tosa_module(dense)


@pytest.mark.timeout(1800)
def test_llvms_own_build_decides_like_the_policy(
    exported: Path,
    dense: DensePolicy,
    training_toolchain: Path,
    tiny_corpus: Corpus,
    pressed_corpus: Corpus,
    tmp_path: Path,
) -> None:
    """LLVM's CMake project, configured with the export, compiles its advisor; a clang linked with that, the SDK's
    archives behind it, makes the same objects as the training clang with the policy.

    Only the files that depend on the export are compiled. All of LLVMAnalysis was once, see docs/llvm.md.
    """
    sdk = find_sdk(19)
    (archive,) = (
        file
        for file in download_deb_source("llvm-toolchain-19", default_cache_dir())
        if file.name.endswith(".orig.tar.xz")
    )
    source, build = tmp_path / "source", tmp_path / "build"
    source.mkdir()
    unpack = ["tar", "--extract", f"--file={archive}", f"--directory={source}", "--strip-components=1", "--wildcards"]
    unpack += ["--exclude=*/llvm/test/*", "--exclude=*/llvm/unittests/*", "*/llvm/*", "*/cmake/*", "*/third-party/*"]
    subprocess.run(unpack, check=True, env=os.environ | {"XZ_OPT": "-T0"})
    settings = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_C_COMPILER": STOCK,
        "CMAKE_CXX_COMPILER": STOCK.with_name("clang++"),
        "LLVM_TARGETS_TO_BUILD": "X86",
        "LLVM_ENABLE_RTTI": "ON",  # as in the SDK, whose archives are linked
        "LLVM_ABI_BREAKING_CHECKS": "FORCE_OFF",
        "LLVM_TABLEGEN": STOCK.with_name("llvm-tblgen"),
        "LLVM_INCLUDE_TESTS": "OFF",
        "LLVM_INCLUDE_BENCHMARKS": "OFF",
    }
    configure: list[str | Path] = [
        "cmake",
        "-C",
        exported / CACHE_FILE,
        "-G",
        "Ninja",
        "-S",
        source / "llvm",
        "-B",
        build,
    ]
    subprocess.run([*configure, *(f"-D{name}={value}" for name, value in settings.items())], check=True)
    models = [build / "lib" / "Analysis" / "InlinerSizeModel.o", build / "lib" / "CodeGen" / "RegAllocEvictModel.o"]
    compiled = [
        build / "lib" / folder / "CMakeFiles" / f"LLVM{folder}.dir" / f"{name}.cpp.o"
        for folder, name in (
            ("Analysis", "MLInlineAdvisor"),
            ("Analysis", "InlineAdvisor"),
            ("CodeGen", "MLRegAllocEvictAdvisor"),
        )
    ]
    subprocess.run(["ninja", "-C", build, *(path.relative_to(build) for path in compiled)], check=True)

    cache = default_cache_dir()
    ours = fetch_source_files("deb", sdk, cache)
    with build_tree(cache, sdk, ours, "native") as tree:
        stock = link_clang(tree, "plain", sdk, ours, "native", 2, {}, "cpp")
        commands = subprocess.run(["ninja", "-C", tree, "-t", "commands", "plain"], capture_output=True, text=True)
        link = shlex.split(commands.stdout.splitlines()[-1].removeprefix(": && ").removesuffix(" && :"))
        link[link.index("-o") + 1] = str(tmp_path / "clang")
        first = next(i for i, argument in enumerate(link) if argument.endswith(".o"))
        link[first:first] = [*map(str, compiled), *map(str, models)]
        subprocess.run(link, check=True, cwd=tree)

    export_fast(dense, tmp_path, STOCK)
    policies = {"inlining": tmp_path, "regalloc": pretrained_policy("regalloc", clang=STOCK)}
    different = dict.fromkeys(policies, 0)
    for module, (problem, policy) in product((*tiny_corpus, *pressed_corpus), policies.items()):
        objects = []
        for clang, advisor in (
            (tmp_path / "clang", Advisor("release")),
            (load_toolchain(training_toolchain).clang, Advisor("policy", policy=policy)),
            (stock, Advisor("default")),
        ):
            flags = [problems.get(problem).optimization, *advisor.flags(problem, None, None)]
            done = subprocess.run([clang, *flags, "-c", module.bitcode, "-o", "-"], capture_output=True)
            assert done.returncode == 0, done.stderr
            objects.append(done.stdout)
        assert objects[0] == objects[1], (module.name, problem)
        different[problem] += objects[0] != objects[2]
    assert all(different.values()), "no decision differs from the heuristic's"


@pytest.mark.tf
def test_llvms_cmake_module_compiles_the_saved_model(policy: Path, training_toolchain: Path, tmp_path: Path) -> None:
    """The cache file for TensorFlow leaves the policy with a SavedModel to LLVM, and the other one to its object."""
    from components.core.policy.tf.saved_model import write_saved_model

    with_model, output, build = tmp_path / "policy", tmp_path / "out", tmp_path / "build"
    shutil.copytree(policy, with_model)
    write_saved_model(read_dense(with_model), with_model)
    output.mkdir()
    policies = {"inlining": with_model, "regalloc": pretrained_policy("regalloc")}
    export_for_llvm(policies, load_toolchain(training_toolchain).upstream_features, output, STOCK)
    (tmp_path / "CMakeLists.txt").write_text(MODELS_PROJECT)
    compiler = Path(sys.executable).with_name("saved_model_cli")
    where = [f"-DTENSORFLOW_AOT_COMPILER={compiler}", "-G", "Ninja", f"-S{tmp_path}", f"-B{build}"]
    subprocess.run(["cmake", "-C", output / TENSORFLOW_CACHE_FILE, *where], check=True)
    subprocess.run(["ninja", "-C", build], check=True)
    header = (build / "InlinerSizeModel.h").read_text()
    assert "class InlinerSizeModel final : public tensorflow::XlaCompiledCpuFunction" in header
    for name in ("InlinerSizeModel.o", "RegAllocEvictModel.o"):
        ours = (output / MODELS / name).read_bytes()
        assert ((build / name).read_bytes() == ours) == (name == "RegAllocEvictModel.o")


def test_object_is_for_the_target(policy: Path, training_toolchain: Path, tmp_path: Path) -> None:
    upstream = load_toolchain(training_toolchain).upstream_features
    for triple, machine in (("aarch64-linux-gnu", 183), ("powerpc64-linux-gnu", 21), ("armv7-linux-gnueabihf", 40)):
        directory = tmp_path / triple
        directory.mkdir()
        export_for_llvm({"inlining": policy}, upstream, directory, STOCK, triple)
        assert Elf((directory / MODELS / "InlinerSizeModel.o").read_bytes()).machine == machine
    with pytest.raises(UserError, match="does not compile for nowhere-none"):
        (tmp_path / "none").mkdir()
        export_for_llvm({"inlining": policy}, upstream, tmp_path / "none", STOCK, "nowhere-none")


def test_pretrained_policies_of_llvms_features_are_exported(training_toolchain: Path, tmp_path: Path) -> None:
    arguments = [
        "export",
        "--policy=pretrained-llvm",
        f"--toolchain={training_toolchain}",
        f"--for-llvm={tmp_path / 'o'}",
        "--aot",
    ]
    main(arguments, standalone_mode=False)
    assert (tmp_path / "o" / TENSORFLOW_CACHE_FILE).is_file()
    for problem in problems.names():
        assert (tmp_path / "o" / "saved_model" / problem / "saved_model.pb").is_file()
        assert (tmp_path / "o" / MODELS / f"{problems.get(problem).llvm.model_class}.o").is_file()


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        ("scheduling", "no optimization problem is called 'scheduling'"),
        ("regalloc", "plugin has no advisor for regalloc"),
    ],
)
def test_problem_that_llvms_build_does_not_know_is_refused(
    problem: str, message: str, training_toolchain: Path, tmp_path: Path
) -> None:
    described = json.loads((training_toolchain / FILE_NAME).read_text())
    for key in ("features", "upstream_features"):
        del described[key]["regalloc"]
    with publish(tmp_path / "plugin", "toolchain") as partial:
        (partial / FILE_NAME).write_text(json.dumps(described))
        (partial / "bin").mkdir()
        (partial / "bin" / "clang").touch(mode=0o755)
    with publish(tmp_path / "policy", "policy") as partial:
        write_policy_info(partial, PolicyInfo(problem, (), 2, trained_by="ppo"))
    arguments = [f"--policy={tmp_path / 'policy'}", f"--toolchain={tmp_path / 'plugin'}"]
    with pytest.raises(UserError, match=message):
        main(["export", *arguments, f"--for-llvm={tmp_path / 'out'}"], standalone_mode=False)
    assert not (tmp_path / "out").exists()


def test_features_that_llvm_lacks_are_refused(training_toolchain: Path, tmp_path: Path) -> None:
    toolchain = load_toolchain(training_toolchain)
    extended = random_policy(toolchain.features["inlining"])
    extended.save(tmp_path)
    write_policy_info(tmp_path, PolicyInfo("inlining", extended.features, 2, trained_by="ppo"))
    with pytest.raises(UserError, match=r"features that LLVM itself does not have: callee_linkage") as caught:
        export_for_llvm({"inlining": tmp_path}, toolchain.upstream_features, tmp_path / "out", toolchain.clang)
    assert "--features llvm" in caught.value.remedy


def test_optional_features_are_assumed_or_fixed(
    policy: Path, dense: DensePolicy, training_toolchain: Path, tmp_path: Path
) -> None:
    """A feature that this LLVM lacks is fixed in the weights; one that another may lack is an initial value."""
    upstream = set(load_toolchain(training_toolchain).upstream_features["inlining"])
    missing, present = dense.features[0].name, dense.features[1].name
    info = replace(load_policy_info(policy), optional_features={missing: 3, present: 7})
    with publish(tmp_path / "policy", "policy") as partial:
        dense.save(partial)
        write_policy_info(partial, info)
    (tmp_path / "out").mkdir()
    export_for_llvm({"inlining": tmp_path / "policy"}, {"inlining": upstream - {missing}}, tmp_path / "out", STOCK)
    header = (tmp_path / "out" / MODELS / "InlinerSizeModel.h").read_text()
    assert re.search(r"\[\d+\] = \{\s*7,", header), "the first word is that of the feature that remains"
    strings = subprocess.run(
        ["strings", tmp_path / "out" / MODELS / "InlinerSizeModel.o"], capture_output=True, text=True
    )
    assert present in strings.stdout.split() and missing not in strings.stdout.split()
