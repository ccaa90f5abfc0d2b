"""Replays keep only options that the compiler parses as the tables do; by the compilers' own parsers."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.core.compiler.replay import replay_option_tables as tables
from components.core.compiler.replay.command_line import replay_arguments
from components.core.compiler.replay.parse_check import misparsed_options
from components.platform.errors import UserError

CLANG = Path("/usr/lib/llvm-19/bin/clang")
OF_TARGETS = {"-meabi", "-mtp", "-msmall-data-limit"}


@pytest.mark.parametrize("hidden", ["-fpass-plugin=x.so", "-fplugin=x.so", "x.so"])
@pytest.mark.parametrize("option", ["-default-function-attr", "-dwarf-debug-flags", "-main-file-name"])
def test_value_that_the_driver_takes_for_an_option_is_refused(option: str, hidden: str, tmp_path: Path) -> None:
    """These are options of cc1 with a value, and of the driver without: it would load the plugin."""
    words = ["-Oz", "-g", option, hidden]
    with pytest.raises(UserError, match=f"refused on replay.*\n  {option}"):
        replay_arguments(words, tmp_path / "m.bc", "m.o", clang=CLANG)
    assert replay_arguments(["-cc1", *words], tmp_path / "m.bc", "m.o", clang=CLANG)


@pytest.mark.parametrize("text", ["", "unknown argument: '-_-0' unknown argument: '-_-1' ", " " * 4096, "\n" * 4096])
def test_messages_that_quote_options_hide_nothing(text: str, tmp_path: Path) -> None:
    """The driver warns of this option, with its value, after its errors, and only the end of them is kept."""
    loud = f"-finline-limit=1{text * (20_000 // len(text) if text else 0)}"
    with pytest.raises(UserError, match=r"refused on replay.*\n  -default-function-attr"):
        replay_arguments(["-default-function-attr", "-fpass-plugin=x.so", loud], tmp_path, "m.o", clang=CLANG)
    long = f"-finline-limit={'1' * 20_000}"
    kept = {"-Oz", "-g"} - misparsed_options(CLANG, ["-Oz", long, "-g"], is_cc1=False)
    assert kept == {"-Oz", "-g"}


def test_options_for_cc1_are_parsed_by_cc1(tmp_path: Path) -> None:
    def replay(*words: str) -> list[str]:
        return replay_arguments([part for word in words for part in ("-Xclang", word)], tmp_path, "o", clang=CLANG)

    assert replay("-target-feature", "-sse4.1", "-dwarf-debug-flags", "-fpass-plugin=x.so")
    with pytest.raises(UserError, match="refused"):
        replay("-dwarf-debug-flags", "-g", "-fpass-plugin=x.so")


@pytest.mark.parametrize("clang", ["clang-19", "clang-22"])
def test_common_arguments_are_parsed_as_the_tables_say(clang: str, tmp_path: Path) -> None:
    driver = (
        "-Oz -std=c++20 -target x86_64-linux-gnu --param ssp-buffer-size=4 -mllvm -x -Xclang -target-feature -Xclang"
    )
    words = [*driver.split(), "-avx", "-fcolor-diagnostics", "-Wall", "-ferror-limit=1", "-march=x86-64"]
    assert misparsed_options(Path("/usr/bin") / clang, words, is_cc1=False) == set()
    cc1 = "-triple x86_64 -target-feature -avx -mllvm -a -mllvm b -ferror-limit 1 -O2 -main-file-name -x"
    assert misparsed_options(Path("/usr/bin") / clang, cc1.split(), is_cc1=True) == set()


def test_each_option_with_a_value_has_one_in_cc1_of_some_version() -> None:
    clangs = [Path(f"/usr/bin/clang-{major}") for major in (19, 22)]
    wrong = [
        misparsed_options(clang, [w for name in sorted(tables.KEPT_WITH_VALUE) for w in (name, "1")], is_cc1=True)
        for clang in clangs
    ]
    # The compiler says which: they are refused where they are no options of its cc1.
    assert set.intersection(*wrong) <= {"--param", "-target", "-fmodule-feature", "-fnew-alignment"} | OF_TARGETS


@pytest.mark.parametrize("of_cc1", [True, False])
@pytest.mark.parametrize("words", [["--target=../../x"], ["-target", "/tmp/x"], ["-triple", "a/b"], ["-triple=a/b"]])
def test_target_that_names_a_file_is_refused(words: list[str], of_cc1: bool, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="refused"):
        replay_arguments([*(["-cc1"] if of_cc1 else []), "-Oz", *words], tmp_path / "m.bc", "m.o")


def test_driver_reads_no_configuration_file(tmp_path: Path) -> None:
    assert "--no-default-config" in replay_arguments(["-Oz"], tmp_path / "m.bc", "m.o")
