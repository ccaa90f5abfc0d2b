"""Both clangs, built for real: they compile, can be moved, and are described correctly."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from components.core.compiler.advisor import Advisor
from components.core.formats.features import FeatureSpec
from components.core.formats.policy import load_policy_info
from components.core.formats.toolchain import load_toolchain
from components.platform.errors import UserError
from components.platform.storage import digest, verify, write_manifest
from components.platform.storage.cache import default_cache_dir
from components.toolchain.build import PROJECT, build, build_tree
from components.toolchain.config import ToolchainConfig
from components.toolchain.make import find_linker, make_toolchain
from components.toolchain.sdk import find_sdk
from components.toolchain.source import fetch_source_files

pytestmark = pytest.mark.toolchain

ARCHIVES = Path(__file__).parents[3] / "docker" / "toolchain" / "archives.txt"
HELLO = """
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
int main() {
  std::map<std::string, int> words{{"hello", 1}, {"world", 2}};
  try { words.at("nobody"); } catch (const std::out_of_range &) { words["caught"] = 3; }
  for (const auto &[word, number] : words) std::cout << word << number << ' ';
}
"""


def run_hello(clangxx: Path, directory: Path, *flags: str) -> str:
    """Compile, link and run a program; return its output."""
    directory.mkdir()
    (directory / "hello.cpp").write_text(HELLO)
    program = directory / "hello"
    subprocess.run([clangxx, "-Oz", *flags, directory / "hello.cpp", "-o", program], check=True)
    return subprocess.run([program], check=True, capture_output=True, text=True).stdout


def test_training_clang_compiles_a_program(training_toolchain: Path, tmp_path: Path) -> None:
    assert run_hello(training_toolchain / "bin" / "clang++", tmp_path / "h") == "caught3 hello1 world2 "


def test_release_clang_is_relocatable(release_toolchain: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere" / "toolchain"
    shutil.copytree(release_toolchain, moved, symlinks=True)
    flags = Advisor("release").flags("inlining", None, None)
    assert run_hello(moved / "bin" / "clang++", tmp_path / "h", *flags) == "caught3 hello1 world2 "
    printed = subprocess.run([moved / "bin" / "clang", "-print-resource-dir"], capture_output=True, text=True).stdout
    assert Path(printed.strip()).resolve() == (moved / "lib" / "clang" / "19").resolve()
    assert subprocess.run([moved / "bin" / "clang-cpp", "-"], input="a\n", capture_output=True, text=True).stdout


def test_release_clang_builds_programs_with_threads_of_openmp(release_toolchain: Path, tmp_path: Path) -> None:
    source, program = tmp_path / "threads.c", tmp_path / "threads"
    source.write_text(
        "#include <omp.h>\nint main(void) {\n  int n = 0;\n"
        "#pragma omp parallel num_threads(3) reduction(+ : n)\n  n += omp_get_num_threads();\n  return n;\n}\n"
    )
    clang = release_toolchain / "bin" / "clang"
    for flags in (["-fuse-ld=bfd"], ["-flto"]):
        subprocess.run([clang, "-Oz", "-fopenmp", *flags, source, "-o", program], check=True)
        assert subprocess.run([program]).returncode == 9


def test_toolchain_json_describes_the_clang(training_toolchain: Path, release_toolchain: Path, policy: Path) -> None:
    training, release = load_toolchain(training_toolchain), load_toolchain(release_toolchain)
    assert (training.mode, release.mode) == ("training", "release")
    assert training.llvm_version == release.llvm_version
    printed = subprocess.run([training.clang, "--version"], capture_output=True, text=True, check=True).stdout
    assert training.clang_version == release.clang_version == printed.splitlines()[0]
    assert training.llvm_version in training.clang_version
    assert training.triple == release.triple == "x86_64-pc-linux-gnu"
    assert FeatureSpec("callee_basic_block_count", "int64") in training.features["inlining"]
    assert not {"inlining_decision", "inlining_default"} & {spec.name for spec in training.features["inlining"]}
    assert release.features == {"inlining": load_policy_info(policy).features}
    assert release.built["policies"] == {"inlining": digest(policy)}
    assert training.built["malloc"] == release.built["malloc"] == "jemalloc"
    verify(release_toolchain)


def test_policy_with_other_features_is_refused(publish_policy, training_toolchain, tmp_path) -> None:
    features = load_toolchain(training_toolchain).features["inlining"]
    policy = publish_policy(tmp_path / "policy", features=(*features[:-1], FeatureSpec("callee_smell", "int64")))
    with pytest.raises(UserError, match="callee_smell") as caught:
        make_toolchain(ToolchainConfig("release", tmp_path / "release", policies=(policy,)))
    assert f"{features[-1].name}" in caught.value.problem
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]


def test_compile_error_of_a_policy_is_reported(policy: Path, tmp_path: Path) -> None:
    broken = tmp_path / "policy"
    shutil.copytree(policy, broken)
    source = (broken / "policy.cpp").read_text()
    (broken / "policy.cpp").write_text(source.replace("uint16_t", "uint17_t"))
    write_manifest(broken)
    with pytest.raises(UserError, match="'uint17_t'"):
        make_toolchain(ToolchainConfig("release", tmp_path / "release", policies=(broken,)))
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]


def test_policy_older_than_the_last_build_is_rebuilt(release_toolchain: Path, policy: Path, tmp_path: Path) -> None:
    """Ninja compares modification times, but must also rebuild for a policy that is older than the last build."""
    other = tmp_path / "policy"
    shutil.copytree(policy, other)
    source = (other / "policy.cpp").read_text()
    (other / "policy.cpp").write_text(source.replace('\\"num_actions\\"', '\\"number_of_actions\\"'))
    os.utime(other / "policy.cpp", (0, 0))
    write_manifest(other)
    clang = make_toolchain(ToolchainConfig("release", tmp_path / "release", policies=(other,))).clang
    assert b'"number_of_actions"' in clang.read_bytes()
    assert b'"number_of_actions"' not in (release_toolchain / "bin" / "clang").read_bytes()


def test_release_toolchain_without_linker_says_what_to_install(
    policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = ToolchainConfig("release", tmp_path, policies=(policy,))
    assert find_linker(config, find_sdk(19), tmp_path) == "no"
    assert "liblld-19-dev" in capsys.readouterr().out
    assert find_linker(ToolchainConfig("training", tmp_path), find_sdk(19), tmp_path) == "no"
    assert capsys.readouterr().out == ""


def test_image_keeps_the_archives_that_clangs_and_linker_are_linked_from(policy: Path, tmp_path: Path) -> None:
    archive_members = ARCHIVES.read_text().replace("@TARGET@", "X86").splitlines()
    sdk, cache = find_sdk(19), default_cache_dir()
    source, policies = fetch_source_files("deb", sdk, cache), {"inlining": tmp_path / "policy"}
    shutil.copytree(policy, policies["inlining"])
    with build_tree(cache, sdk, source, "native") as tree:
        for target in ("training", "release"):
            build(tree, target, sdk, source, "native", 2, policies, "cpp")
        for target in ("training", "release", "ld.lld"):
            commands = subprocess.run(["ninja", "-t", "commands", target], cwd=tree, check=True, capture_output=True)
            # Compiles name no file of this machine, so that ccache finds objects of other trees and of containers.
            assert str(PROJECT.parent) not in commands.stdout.decode()
            assert str(source) not in commands.stdout.decode()
            link = commands.stdout.decode().splitlines()[-1].removeprefix(": && ").removesuffix(" && :")
            flag = f"-Wl,--why-extract={tmp_path / 'extracted'}"
            subprocess.run([*shlex.split(link), flag, "-o", tmp_path / "program"], cwd=tree, check=True)
            (tree / target).unlink()
            archives = {
                Path(name).name
                for name in re.findall(r"\t(/\S+/llvm-19/\S+\.a)\(", (tmp_path / "extracted").read_text())
            }
            assert archives <= set(archive_members), target
            assert ("liblldELF.a" in archives) == (target == "ld.lld")
