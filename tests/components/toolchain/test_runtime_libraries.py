"""A release clang links what its installed clang links: sanitizers, coverage, profiles."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.toolchain

OVERFLOW = """
#include <cstdlib>
int main(int count, char **) {
  int *numbers = new int[4];
  int read = numbers[count + 3];
  delete[] numbers;
  return read == 7;
}
"""


@pytest.mark.parametrize("level", ["-O1", "-Oz"])
def test_address_sanitizer_finds_an_overflow(pretrained_release: Path, tmp_path: Path, level: str) -> None:
    program = build(pretrained_release, tmp_path, level, "-g", "-fsanitize=address,undefined")
    ran = subprocess.run([program], capture_output=True, text=True, timeout=60)
    assert ran.returncode != 0 and "heap-buffer-overflow" in ran.stderr


def test_coverage_writes_a_profile(pretrained_release: Path, tmp_path: Path) -> None:
    program = build(pretrained_release, tmp_path, "-Oz", "-fprofile-instr-generate", "-fcoverage-mapping")
    profile = tmp_path / "raw.profraw"
    subprocess.run([program], env={"LLVM_PROFILE_FILE": str(profile)}, timeout=60)
    merged = tmp_path / "merged"
    subprocess.run(["llvm-profdata-19", "merge", profile, "-o", merged], check=True)
    report: list[str | Path] = ["llvm-cov-19", "report", program, f"-instr-profile={merged}"]
    assert "100.00%" in subprocess.check_output(report, text=True)


def build(release: Path, directory: Path, *flags: str) -> Path:
    source, program = directory / "overflow.cc", directory / "overflow"
    source.write_text(OVERFLOW)
    subprocess.run([release / "bin" / "clang++", *flags, source, "-o", program], check=True)
    return program
