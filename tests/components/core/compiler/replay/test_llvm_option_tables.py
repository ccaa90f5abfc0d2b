"""Compares the tables of LLVM's options with what each clang lists: no option that takes a text may be unclassified."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from components.core.compiler.replay import llvm_option_tables as tables
from components.core.compiler.replay.replay_options import is_text_option, select_options
from components.core.formats.strategy import SUPPORTED_LLVM_MAJORS

NUMBERS = re.compile(r"\[?=<(u?int|u?long|number|N|x|ulonglong)>\]?")
TEXT = re.compile(r"\[?=<(string|filename|path|directory)>\]?")
RISKY = re.compile(r"\b(files?|filename|director(y|ies)|programs?|window|viewer|graphviz|socket|plugin|dot)\b", re.I)
HARMLESS = set(
    """
    disable-whole-program-visibility msan-disable-checks whole-program-visibility aarch64-mark-bti-property
    asm-show-inst enable-name-compression enable-order-file-instrumentation execute-concurrency implicit-mapsyms
    incremental-linker-compatible instcombine-guard-widening-window mc-relax-all mips-mixed-16-32 only-simple-regions
    persist-profile-staleness preserve-input-debuginfo-format print-on-crash procres-cost-lim
    scale-partial-sample-profile-working-set-size split-dwarf-cross-cu-references static-func-strip-dirname-prefix
    stats use-undef window-diff-limit window-ii-coeff window-ii-limit window-region-limit window-search-num
    window-search-ratio
    """.split()
)
"""Options without text whose help mentions a file or program that they do not open."""


@dataclass
class Option:
    """An option as --help-hidden lists it: how its value is shown ("": a flag), and its keywords."""

    value: str
    help: str
    keywords: list[str] = field(default_factory=list)


def listed_options(clang: Path) -> dict[str, Option]:
    command = [str(clang), "-mllvm", "--help-hidden", "-x", "c", "-c", "/dev/null", "-o", "/dev/null"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    options: dict[str, Option] = {}
    last: Option | None = None
    for line in text.splitlines():
        if match := re.match(r"^ {2,4}--?([\w][\w.+-]*?)(\[?=.*?)?\s+- (.*)$", line):
            last = options.setdefault(match[1], Option(match[2] or "", match[3]))
        elif (match := re.match(r"^    =(\S*)\s*(- .*)?$", line)) and last is not None:
            last.keywords.append(match[1])
    assert len(options) > 1500  # the training clang has only some of the targets
    return options


def is_refused(name: str) -> bool:
    return bool(select_options(["-mllvm", f"-{name}"], True).refused)


def require_classified(options: dict[str, Option]) -> None:
    missing = []
    for name, option in options.items():
        text = bool(option.value) and not option.keywords and not NUMBERS.fullmatch(option.value)
        classified = is_refused(name) or name in tables.LLVM_DROPPED
        if text:
            classified |= is_text_option(name)
        elif option.keywords:
            classified |= is_text_option(name) or name in tables.LLVM_KEYWORD_OPTIONS
        else:
            classified |= not RISKY.search(option.help) or name in HARMLESS
        if not classified:
            missing.append(f"{name}{option.value} - {option.help}")
    assert not missing, "add these options to llvm_option_tables.py:\n" + "\n".join(missing)


@pytest.mark.parametrize("major", sorted({major for majors in SUPPORTED_LLVM_MAJORS.values() for major in majors}))
def test_every_option_of_clang_that_takes_a_text_or_opens_a_file_is_classified(major: int) -> None:
    clang = shutil.which(f"clang-{major}")
    assert clang, f"install clang-{major}"
    options = listed_options(Path(clang))
    require_classified(options)
    for name in tables.LLVM_KEYWORD_OPTIONS & set(options):
        assert options[name].keywords or not TEXT.fullmatch(options[name].value), f"{name} takes a text"
        words = [word for key in options[name].keywords for word in ("-mllvm", f"-{name}={key}")]
        assert not select_options(words, True).refused


@pytest.mark.toolchain
def test_every_option_of_the_training_clang_is_classified(training_toolchain: Path) -> None:
    options = listed_options(training_toolchain / "bin" / "clang")
    require_classified(options)
    ours = [name for name in options if name.startswith("mlgo-") or name.endswith("training-log")]
    assert len(ours) > 3 and all(map(is_refused, ours))


@pytest.mark.parametrize("option", [Option("=<string>", "Run this"), Option("", "Write the result to a file")])
def test_unclassified_options_are_found(option: Option) -> None:
    with pytest.raises(AssertionError, match="new-option"):
        require_classified({"new-option": option})


def test_an_option_has_one_class() -> None:
    text_classes = (tables.LLVM_KEYWORD_OPTIONS, tables.LLVM_TEXT_OPTIONS)
    assert not text_classes[0] & text_classes[1]
    for names in text_classes:
        assert not names & (tables.LLVM_REFUSED | tables.LLVM_DROPPED)
        assert not [name for name in names if is_refused(name)]
