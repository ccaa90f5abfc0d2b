"""Clangs with a policy embedded as C++ and as TensorFlow's AOT object compile to the same code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from components.core.compiler.advisor import Advisor
from components.core.compiler.objects.elf import Elf
from components.core.formats.features import FeatureSpec
from components.core.formats.policy import PolicyInfo
from components.core.formats.toolchain import load_toolchain
from components.platform.errors import UserError
from components.toolchain.config import ToolchainConfig
from components.toolchain.make import check_embedded, make_toolchain


def compiled(toolchain: Path, advisor: Advisor, module: Path, output: Path, *more: str) -> bytes:
    flags = [*advisor.flags("inlining", None, None), *more]
    subprocess.run([toolchain / "bin" / "clang", "-Oz", *flags, "-c", module, "-o", output], check=True)
    return output.read_bytes()


@pytest.mark.toolchain
def test_aot_policy_decides_like_the_native_policy(
    policy: Path, training_toolchain: Path, release_toolchain: Path, tiny_corpus, tmp_path: Path
) -> None:
    forms = tmp_path / "forms"
    command = [sys.executable, "-m", "components.policy", "export", "--aot", "--policy", str(policy)]
    subprocess.run([*command, "--toolchain", str(training_toolchain), "--output", str(forms)], check=True)
    embedded = tmp_path / "release"
    make_toolchain(ToolchainConfig("release", embedded, policies=(forms,), embed="tf-aot"))

    assert load_toolchain(embedded).built["embed"] == "tf-aot"
    module = tiny_corpus.directory / "lib/strings.cpp.o.bc"
    ours = compiled(release_toolchain, Advisor("release"), module, tmp_path / "ours.o")
    assert compiled(embedded, Advisor("release"), module, tmp_path / "theirs.o") == ours
    assert compiled(embedded, Advisor("default"), module, tmp_path / "heuristic.o", "--no-default-config") != ours


def test_aot_policy_cannot_assume_values_of_features_that_the_compiler_lacks() -> None:
    """Its class has no values to assume, so that the features would be 0."""
    present, lacking = FeatureSpec("known", "int64"), FeatureSpec("lacking", "int64")
    info = PolicyInfo("inlining", (present, lacking), 2, "ppo", optional_features={"known": 2.0, "lacking": 1.0})
    check_embedded(info, [present], "cpp")
    with pytest.raises(UserError, match=r"lacks lacking, .* with --embed tf-aot") as caught:
        check_embedded(info, [present], "tf-aot")
    assert caught.value.remedy == "use --embed cpp"
    check_embedded(info, [present, lacking], "tf-aot")


@pytest.mark.toolchain
def test_pretrained_policies_reduce_code_size(tmp_path: Path) -> None:
    output = tmp_path / "clang"
    command = [sys.executable, "-m", "components.toolchain", "--mode", "release", "--policy", "pretrained"]
    done = subprocess.run([*command, "--output", str(output)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "inlining: on" in done.stdout
    source = tmp_path / "maps.cc"
    source.write_text(
        "#include <map>\n#include <string>\n#include <vector>\n"
        "std::map<std::string, std::vector<int>> table;\n"
        "void add(const std::string &name, int value) { table[name].push_back(value); }\n"
        "int sum(const std::string &name) { int all = 0; for (int x : table.at(name)) all += x; return all; }\n"
    )
    sizes = {}
    for mode in ("default", "release"):
        compiled = tmp_path / f"{mode}.o"
        flags = ["-Oz", "-mllvm", f"-enable-ml-inliner={mode}", "-c", str(source), "-o", str(compiled)]
        subprocess.run([output / "bin" / "clang++", *flags], check=True)
        sizes[mode] = Elf(memoryview(compiled.read_bytes())).text_size()
    assert sizes["release"] < sizes["default"]
    said = subprocess.run([output / "bin" / "clang", "--version"], capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[-1].startswith("mlgo-pipeline: release clang, inlining policy ")
