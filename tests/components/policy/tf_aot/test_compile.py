"""TensorFlow's ahead-of-time form: compiles, links without TensorFlow, and decides like the arrays."""

import subprocess

import numpy as np
import pytest

from components.core.policy.tf.saved_model import write_saved_model
from components.platform.errors import UserError
from components.policy.tf_aot.compile import compile_aot, runtime_sources, tensorflow_root

DRIVER = r"""
#include "InlinerSizeModel.h"
#include <cstdio>
#include <cstring>
// Prints a decision for each row of features (8 bytes each, in the order of the arguments) on stdin.
int main(int argc, char **argv) {
  llvm::InlinerSizeModel model;
  int64_t row[64];
  const int count = argc - 1;
  const int result = model.LookupResultIndex("fetch_inlining_decision");
  while (std::fread(row, 8, count, stdin) == size_t(count)) {
    for (int i = 0; i < count; ++i) {
      const int place = model.LookupArgIndex(std::string("feed_") + argv[i + 1]);
      if (place < 0) return 2;
      std::memcpy(model.arg_data(place), &row[i], model.arg_size(place));
    }
    model.Run();
    std::printf("%lld\n", (long long)*static_cast<int64_t *>(model.result_data(result)));
  }
}
"""


@pytest.mark.tf
def test_compiled_class_decides_like_the_reference(make_policy, clang, tmp_path):
    policy, columns = make_policy(21, (16, 8))
    write_saved_model(policy, tmp_path)
    aot = compile_aot(tmp_path, "inlining", clang)
    assert {path.name for path in aot.iterdir()} == {
        "InlinerSizeModel.h",
        "InlinerSizeModel.o",
        "libtf_xla_runtime.a",
        "include",
    }
    (tmp_path / "driver.cpp").write_text(DRIVER)
    command = ["clang++-19", "-std=c++17", "-w", "-Iaot", "-Iaot/include", "driver.cpp", "aot/InlinerSizeModel.o"]
    subprocess.run([*command, "aot/libtf_xla_runtime.a", "-o", "driver"], cwd=tmp_path, check=True)
    rows = np.zeros((len(columns["flag"]), len(columns)), np.int64)
    for i, values in enumerate(columns.values()):
        rows.view(values.dtype)[:, i * 8 // values.itemsize] = values
    done = subprocess.run([tmp_path / "driver", *columns], input=rows.tobytes(), capture_output=True, check=True)
    expected = policy.logits(columns).argmax(axis=1)
    assert 0 < expected.sum() < len(expected)
    np.testing.assert_array_equal(np.array(done.stdout.split(), np.int64), expected)


def test_kernels_are_selected_by_undefined_symbols(clang, tmp_path):
    (tmp_path / "a.c").write_text(
        "void __xla_cpu_runtime_EigenSingleThreadedMatMulF32(void); void own(void);"
        "void f(void) { __xla_cpu_runtime_EigenSingleThreadedMatMulF32(); own(); }"
    )
    subprocess.run([clang, "-c", "a.c"], cwd=tmp_path, check=True)
    sources = runtime_sources(tmp_path / "a.o", tensorflow_root() / "xla_aot_runtime_src")
    assert {path.name for path in sources[4:]} == {"runtime_single_threaded_matmul_f32.cc"}
    assert all(path.is_file() for path in sources)


@pytest.mark.tf
def test_failure_of_tensorflows_compiler_is_reported(clang, tmp_path):
    (tmp_path / "saved_model").mkdir()
    with pytest.raises(UserError, match=r"TensorFlow's AOT compiler, for .*SavedModel file does not exist"):
        compile_aot(tmp_path, "inlining", clang)
