"""Policies exported for an LLVM that users build: LLVM's own advisor compiles with the header, without TensorFlow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from components.core.compiler.elf import Elf
from components.core.console import UserError
from components.core.formats.policy import PolicyInfo, write_policy_info
from components.core.formats.toolchain import load_toolchain
from components.core.policy.dense import DensePolicy
from components.core.policy.llvm_build import CACHE_FILE, MODELS, export_for_llvm
from components.core.policy.native_policy import NativePolicy
from components.core.policy.shared_object import link_shared_object
from components.core.storage import publish
from components.core.storage.cache import default_cache_dir
from components.toolchain.sdk import find_sdk
from components.toolchain.source import llvm_source
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


@pytest.fixture(scope="module")
def dense(training_toolchain: Path) -> DensePolicy:
    """A random policy of LLVM's own features."""
    return random_upstream_policy(load_toolchain(training_toolchain))


@pytest.fixture(scope="module")
def policy(dense: DensePolicy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("policy") / "policy"
    with publish(directory) as partial:
        dense.save(partial)
        write_policy_info(partial, PolicyInfo("inlining", dense.features, 2, trained_by="ppo"))
    return directory


@pytest.fixture(scope="module")
def exported(policy: Path, training_toolchain: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("export") / "for-llvm"
    command = [sys.executable, "-m", "components.core.policy", "export", "--policy", str(policy)]
    done = subprocess.run(
        [*command, "--toolchain", str(training_toolchain), "--for-llvm", str(output)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert CACHE_FILE in done.stdout
    return output


def test_llvms_advisor_compiles_with_the_header(exported: Path, tmp_path: Path) -> None:
    source = llvm_source("deb", find_sdk(19), default_cache_dir())
    command = ["/usr/lib/llvm-19/bin/clang++", "-std=c++17", "-fno-rtti", "-I/usr/lib/llvm-19/include"]
    command += [f"-I{exported / MODELS}", "-DLLVM_HAVE_TF_AOT_INLINERSIZEMODEL"]
    (tmp_path / "llvm" / "Config").mkdir(parents=True)
    (tmp_path / "llvm" / "Config" / "config.h").write_text("")
    output = tmp_path / "MLInlineAdvisor.o"
    advisor = source / "llvm/lib/Analysis/MLInlineAdvisor.cpp"
    subprocess.run([*command, f"-I{tmp_path}", "-c", advisor, "-o", output], check=True)
    undefined = subprocess.run(["nm", "-u", output], capture_output=True, text=True, check=True).stdout
    defined = subprocess.run(["nm", exported / MODELS / "InlinerSizeModel.o"], capture_output=True, text=True).stdout
    for function in ("mlgo_inlining_decide", "mlgo_inlining_feature_index"):
        assert f"U {function}" in undefined and f"T {function}" in defined
    wanted = subprocess.run(["nm", "-u", exported / MODELS / "InlinerSizeModel.o"], capture_output=True, text=True)
    assert set(wanted.stdout.split()) <= {"U", "memcpy", "memset", "strcmp", "sqrtf", "log1pf"}, "no run-time library"


def test_object_decides_like_the_policy(exported: Path, dense: DensePolicy, tmp_path: Path) -> None:
    (tmp_path / "exports.cpp").write_text(EXPORTS)
    library = link_shared_object(
        tmp_path / "policy.so", tmp_path / "exports.cpp", STOCK, [], [str(exported / MODELS / "InlinerSizeModel.o")]
    )
    rng = np.random.default_rng(0)
    columns = {f.name: rng.integers(0, 300, (500, 1)) for f in dense.features}
    logits = NativePolicy(library.parent).logits(columns)
    np.testing.assert_array_equal(logits.argmax(1), dense.logits(columns).argmax(1))


def test_cmake_takes_the_settings(exported: Path, tmp_path: Path) -> None:
    """The part of llvm/CMakeLists.txt that reads them: TENSORFLOW_AOT_PATH is a project with these two targets."""
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(llvm LANGUAGES CXX)\n"
        "include_directories(${TENSORFLOW_AOT_PATH}/include)\n"
        "add_subdirectory(${TENSORFLOW_AOT_PATH}/xla_aot_runtime_src ${CMAKE_BINARY_DIR}/tf_runtime)\n"
        "foreach(file HEADER OBJECT)\n  set(path ${LLVM_OVERRIDE_MODEL_${file}_INLINERSIZEMODEL})\n"
        "  if(NOT EXISTS ${path})\n    message(FATAL_ERROR missing)\n  endif()\nendforeach()\n"
        'if(NOT LLVM_RAEVICT_MODEL_PATH STREQUAL "none")\n  message(FATAL_ERROR raevict)\nendif()\n'
        "add_library(analysis STATIC a.cpp $<TARGET_OBJECTS:tf_xla_runtime_objects>)\n"
        "target_link_libraries(analysis PRIVATE tf_xla_runtime)\n"
    )
    (tmp_path / "a.cpp").write_text("int a;\n")
    configure: list[str | Path] = [
        "cmake",
        "-C",
        exported / CACHE_FILE,
        "-G",
        "Ninja",
        "-S",
        tmp_path,
        "-B",
        tmp_path / "build",
    ]
    subprocess.run(configure, check=True)
    subprocess.run(["cmake", "--build", tmp_path / "build"], check=True)


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


def test_features_that_llvm_lacks_are_refused(training_toolchain: Path, tmp_path: Path) -> None:
    toolchain = load_toolchain(training_toolchain)
    random_policy(toolchain.features["inlining"]).save(tmp_path)
    with pytest.raises(UserError, match=r"features that LLVM itself does not have: callee_linkage") as caught:
        export_for_llvm({"inlining": tmp_path}, toolchain.upstream_features, tmp_path / "out", toolchain.clang)
    assert "--features llvm" in caught.value.remedy
