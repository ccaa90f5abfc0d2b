"""The generated C++, compiled and run: the same logits as NumPy, with every compiler, in the class LLVM expects."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from components.core.formats.policy import PolicyInfo
from components.core.policy.dense import DensePolicy
from components.core.policy.generated.codegen import POLICY_HEADER, POLICY_SOURCE, Training, description_json, generate
from components.core.policy.generated.native_policy import NativePolicy
from components.core.policy.generated.shared_object import COMPILE_FLAGS, build_shared_object

DRIVER = r"""
#include "policy.h"
#include <cstdio>
#include <cstring>
#include <vector>
// Reads rows of features (8 bytes each) in the order of the arguments, prints a decision per row.
int main(int argc, char **argv) {
  llvm::InlinerSizeModel model;
  std::vector<int> places;
  for (int i = 1; i < argc; ++i) {
    places.push_back(model.LookupArgIndex(std::string("feed_") + argv[i]));
    if (places.back() < 0) return 2;
  }
  if (model.LookupArgIndex("feed_nothing") != -1 || model.LookupArgIndex(argv[1]) != -1) return 3;
  if (model.LookupResultIndex("fetch_other") != -1) return 4;
  const int result = model.LookupResultIndex("fetch_inlining_decision");
  std::vector<int64_t> row(places.size());
  while (std::fread(row.data(), 8, row.size(), stdin) == row.size()) {
    for (size_t i = 0; i < row.size(); ++i)
      std::memcpy(model.arg_data(places[i]), &row[i], 8);
    model.Run();
    std::printf("%lld\n", (long long)*static_cast<int64_t *>(model.result_data(result)));
  }
}
"""

LLVM_DRIVER = r"""
#include "policy.h"
#include "llvm/Analysis/ReleaseModeModelRunner.h"
#include "llvm/Analysis/TensorSpec.h"
#include <cstdio>
using namespace llvm;
int main(int argc, char **argv) {
  LLVMContext context;
  std::vector<TensorSpec> specs;
  for (int i = 1; i < argc; ++i)
    specs.push_back(TensorSpec::createSpec<int64_t>(argv[i], {1}));
  ReleaseModeModelRunner<InlinerSizeModel> runner(context, specs, "inlining_decision");
  std::vector<int64_t> row(specs.size());
  while (std::fread(row.data(), 8, row.size(), stdin) == row.size()) {
    for (size_t i = 0; i < row.size(); ++i)
      memcpy(runner.getTensorUntyped(i), &row[i], 8);
    std::printf("%lld\n", (long long)runner.evaluate<int64_t>());
  }
}
"""


def rows_of(columns, order):
    """Return the decisions as rows of eight bytes per feature."""
    rows = np.zeros((len(columns[order[0]]), len(order)), np.int64)
    for i, name in enumerate(order):
        values = columns[name]
        rows.view(values.dtype)[:, i * 8 // values.itemsize] = values
    return rows.tobytes()


def decisions_of(program, columns, order):
    done = subprocess.run([program, *order], input=rows_of(columns, order), capture_output=True, timeout=60)
    assert done.returncode == 0, (done.returncode, done.stderr)
    return np.array(done.stdout.split(), np.int64)


@pytest.mark.parametrize(
    ("seed", "hidden", "actions"),
    [(0, (64, 64, 32), 2), (1, (100, 100, 50), 2), (2, (7,), 3), (3, (), 2), (4, (33, 5, 1), 5)],
)
def test_shared_object_gives_the_logits_of_the_reference(make_policy, clang, tmp_path, seed, hidden, actions):
    policy, columns = make_policy(seed, hidden, actions=actions)
    generate(policy, tmp_path)
    build_shared_object(tmp_path, clang)
    native = NativePolicy(tmp_path)
    assert (native.problem, native.features, native.num_actions) == ("inlining", policy.features, actions)
    np.testing.assert_allclose(native.logits(columns), policy.logits(columns), atol=2e-5)


@pytest.mark.parametrize("compiler", ["clang++-19", "g++"])
def test_class_decides_like_the_reference(make_policy, tmp_path, compiler):
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    policy, columns = make_policy(5)
    generate(policy, tmp_path)
    (tmp_path / "driver.cpp").write_text(DRIVER)
    command = [compiler, *COMPILE_FLAGS, "-Wall", "-Wextra", "-Werror", "-o", "driver", "driver.cpp", "policy.cpp"]
    subprocess.run(command, cwd=tmp_path, check=True)
    order = list(columns)[::-1]
    expected = policy.logits(columns).argmax(axis=1)
    assert 0 < expected.sum() < len(expected)
    np.testing.assert_array_equal(decisions_of(tmp_path / "driver", columns, order), expected)


@pytest.mark.tf
def test_llvms_release_mode_runs_the_class(make_policy, tmp_path):
    """LLVM's ReleaseModeModelRunner, from the installed SDK, accepts features that the policy lacks.

    Optional features that a compiler does not have keep their values.
    """
    policy, columns = make_policy(6)
    optional = {"count": 9.0, "weight": -0.75}
    generate(policy, tmp_path, optional)
    (tmp_path / "driver.cpp").write_text(LLVM_DRIVER)
    config = subprocess.run(
        ["llvm-config-19", "--cxxflags", "--ldflags", "--libs", "--link-shared", "analysis"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    command = ["clang++-19", "-O1", "driver.cpp", "policy.cpp", *config, "-fno-exceptions", "-o", "driver"]
    subprocess.run(command, cwd=tmp_path, check=True)
    columns["of_a_newer_compiler"] = np.arange(len(columns["flag"]))
    expected = policy.logits(columns).argmax(axis=1)
    np.testing.assert_array_equal(decisions_of(tmp_path / "driver", columns, list(columns)), expected)
    assumed = columns | {name: np.full_like(columns[name], value) for name, value in optional.items()}
    required = [name for name in columns if name not in optional]
    assert (policy.logits(assumed).argmax(axis=1) != expected).any()
    np.testing.assert_array_equal(
        decisions_of(tmp_path / "driver", columns, required), policy.logits(assumed).argmax(axis=1)
    )


def test_a_binary_can_hold_policies_of_two_problems(make_policy, clang, tmp_path):
    """In a release clang all external symbols include the problem's name; policy.so exports its API instead."""
    generate(make_policy()[0], tmp_path)
    subprocess.run([clang, "-xc++", *COMPILE_FLAGS, "-c", "policy.cpp", "-o", "policy.o"], cwd=tmp_path, check=True)

    def list_symbols(*command):
        listed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        return {line.split()[-1] for line in listed.splitlines()}

    static = list_symbols("nm", "--defined-only", "--extern-only", "policy.o")
    assert static and all(name.startswith("mlgo_inlining_") for name in static)
    build_shared_object(tmp_path, clang)
    assert list_symbols("nm", "-D", "--defined-only", "policy.so") == {"mlgo_policy_describe", "mlgo_policy_logits"}


def describe(policy: DensePolicy, training: Training | None = None) -> dict:
    return json.loads(description_json(policy.problem, policy.features, policy.num_actions, training))


def test_the_same_policy_gives_the_same_bytes(make_policy, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = (generate(make_policy()[0], tmp_path / name) for name in "ab")
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]


def test_description_is_json_with_llvms_type_names(make_policy):
    described = describe(make_policy()[0])
    assert described["features"][0] == {"name": "constant", "type": "int64_t", "shape": [1]}
    assert described["features"][-1]["type"] == "float"
    assert (described["version"], described["problem"], described["num_actions"]) == (1, "inlining", 2)


def test_description_and_header_have_the_ranges_of_the_training(make_policy, tmp_path):
    ranges = {"node_count": (0, 90), "cost_estimate": (-(2**63), 7)}
    header, _ = generate(make_policy()[0], tmp_path, training=Training(ranges, unwind_tables=True))
    described = describe(make_policy()[0], Training(ranges, unwind_tables=True))
    assert described["trained_ranges"] == {"node_count": [0, 90], "cost_estimate": [-(2**63), 7]}
    assert described["unwind_tables"] is True
    user = tmp_path / "user.cpp"
    user.write_text(
        f'#include "{header}"\n#ifndef MLGO_INLINING_UNWIND_TABLES\n#error\n#endif\n'
        "constexpr struct { const char *name; long long smallest, largest; } all[] = {MLGO_INLINING_TRAINED_RANGES};\n"
        "static_assert(sizeof all / sizeof *all == 2 && all[0].largest == 90 && all[1].smallest == INT64_MIN);\n"
    )
    subprocess.run(["clang++-19", "-std=c++17", "-fsyntax-only", user], check=True)


def test_compiler_gets_the_ranges_of_use_counts():
    info = PolicyInfo("inlining", (), 2, "ppo", trained_ranges={"cost_estimate": (0, 1), "caller_users": (1, 9)})
    assert Training.of(info) == Training({"caller_users": (1, 9)})
    assert Training.of(replace(info, problem="regalloc", unwind_tables=True)) == Training(unwind_tables=True)


def test_policy_without_ranges_is_generated_as_before(make_policy, tmp_path):
    header, source = generate(make_policy()[0], tmp_path)
    assert "RANGES" not in header.read_text() and "UNWIND" not in header.read_text()
    assert not {"trained_ranges", "unwind_tables"} & set(describe(make_policy()[0]))
    assert "trained_ranges" not in source.read_text()


def test_code_generation_and_inference_do_not_import_tensorflow():
    """Every iteration runs a fast export, and steps without TensorFlow read policies."""
    modules = [
        "components.core.policy.export",
        "components.core.policy.generated.native_policy",
        "components.policy.compare",
    ]
    code = f"import sys, {', '.join(modules)}; assert 'tensorflow' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_least_integer_is_an_initial_value(make_policy, tmp_path):
    policy, _columns = make_policy()
    generate(policy, tmp_path, {policy.features[0].name: -(2.0**63)})
    (tmp_path / "check.cpp").write_text(
        f'#include "{POLICY_HEADER}"\nint main() {{ llvm::InlinerSizeModel model; '
        "return *static_cast<long *>(model.arg_data(0)) != (-9223372036854775807L - 1); }\n"
    )
    sources = [tmp_path / "check.cpp", tmp_path / POLICY_SOURCE]
    subprocess.run(["clang++-19", "-Wall", "-Werror", *sources, "-o", tmp_path / "check"], check=True)
    subprocess.run([tmp_path / "check"], check=True)
