"""Tests replayed command lines: options kept, dropped and refused, and that clang generates the same code."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from components.core.compiler.objects.elf import Elf
from components.core.compiler.replay.command_line import replay_arguments, require_replayable
from components.core.compiler.replay.replay_options import MissingValue, select_options
from components.core.formats.corpus import Corpus, Module
from components.corpus.command_edits import CommandEdits
from components.platform.errors import UserError

BITCODE = Path("corpus/m.bc")
END = ["-emit-obj", "-x", "ir", "corpus/m.bc", "-o", "out.o"]


def replay(*recorded: str, **options) -> list[str]:
    return replay_arguments(recorded, BITCODE, "out.o", **options)


@pytest.mark.parametrize(
    "dropped",
    [
        ["-fembed-bitcode=all"],
        ["-fembed-bitcode"],
        ["-dependency-file", "sub/a.d"],
        ["-MT", "sub/a.o", "-sys-header-deps", "-MP"],
        ["-split-dwarf-file", "a.dwo", "-split-dwarf-output", "a.dwo"],
        ["-opt-record-file", "a.yaml", "-opt-record-format", "yaml"],
        ["-serialize-diagnostic-file", "a.dia"],
        ["-coverage-notes-file=/b/a.gcno"],
        ["-ftime-trace=/b/a.json"],
        ["-S"],
        ["-emit-llvm-bc"],
        ["-o", "a.o"],
        ["-o", "a.o", "-x", "c++", "a.cpp"],
        ["-x", "c", "dir with space/a.c"],
        ["-flto=thin", "-flto-unit", "-fthinlto-index=/b/a.thinlto.bc"],
        ["-Werror", "-Werror=unused"],
        ["-D", "__GCC_HAVE_DWARF2_CFI_ASM=1", "-DNDEBUG", "-U", "X"],
        ["-I", "include", "-Iinclude", "-isystem", "@sys", "-internal-externc-isystem", "/usr/include"],
        ["-resource-dir", "/usr/lib/llvm-19/lib/clang/19", "-include", "config.h", "-fmodule-file=m=/b/m.pcm"],
        ["-add-plugin", "find-bad-constructs", "-plugin-arg-find-bad-constructs", "check-ipc"],
        ["-save-temps=obj", "-as-secure-log-file", "/b/log"],
        ["-mllvm", "-lto-embed-bitcode=post-merge-pre-opt"],
        ["-mllvm", "--lto-embed-bitcode=optimized"],
        ["-mllvm", "-crash-diagnostics-dir=/e", "-mllvm", "-crash-diagnostics-dir", "-mllvm", "/e"],
        ["-mllvm", "-enable-ml-inliner=release", "-mllvm", "-regalloc-enable-advisor=release"],
        ["-v", "-C", "-dD", "-W"],
    ],
)
def test_options_that_write_files_or_name_the_source_are_dropped(dropped: list[str]) -> None:
    assert replay("-cc1", "-triple", "x", "-Oz", *dropped) == ["-cc1", "-triple", "x", "-Oz", *END]
    assert replay("-cc1", *dropped, "-triple", "x", "-Oz") == ["-cc1", "-triple", "x", "-Oz", *END]


@pytest.mark.parametrize(
    "options",
    [
        ["-main-file-name", "a.c"],
        ["-mllvm", "-H"],
        ["-mllvm", "-inline-threshold", "-mllvm", "3"],
        ["-mllvm", "-x86-asm-syntax=intel"],
        ["-mllvm", "-asan-mapping-offset=0xdffffc0000000000"],
        ["-mllvm", "-enable-machine-outliner=never", "-mllvm", "-regalloc", "-mllvm", "greedy"],
        ["-mllvm", "-pass-remarks=inline|gvn", "-mllvm", "-x86-align-branch=fused+jcc"],
        ["-mllvm", "-enable-order-file-instrumentation"],
        ["-debug-forward-template-params", "--compress-debug-sections=zlib"],
        ["-no-pointer-tbaa", "-fc++-static-destructors=all", "-fms-layout-compatibility=microsoft"],  # LLVM 22
        ["-mllvm", "-inline-threshold=3"],
        ["-fdebug-compilation-dir=/b", "-debug-info-kind=constructor"],
        ["-ferror-limit", "19", "-fcolor-diagnostics", "-Wall", "-Wno-unused"],
        ["-fprofile-instrument=clang", "-fprofile-instrument-path=default_%m.profraw"],
        ["-target-feature", "+sse4.2", "-mrelocation-model", "pic", "-pic-level", "2"],
        ["-ffunction-sections", "-fdata-sections"],
    ],
)
def test_options_that_affect_code_are_kept(options: list[str]) -> None:
    assert replay("-cc1", *options, "-Oz") == ["-cc1", *options, "-Oz", *END]


@pytest.mark.parametrize(
    "dropped",
    [
        ["-c"],
        ["-o", "a.o"],
        ["-MD", "-MF", "a.d"],
        ["-MJ", "commands.json"],
        ["-flto=thin"],
        ["-save-temps"],
        ["-Wl,-z,now", "-lm", "-shared"],
        ["-v", "-fcrash-diagnostics-dir=/e", "-fcrash-diagnostics=all", "-gen-reproducer=error"],
        ["-fproc-stat-report=/e", "-fsave-optimization-record=yaml", "-foptimization-record-file=/e"],
        ["-B", "/e/bin", "-B/e/bin", "--gcc-toolchain=/e", "-no-canonical-prefixes"],
        ["-fno-integrated-as", "-no-integrated-as"],
    ],
)
def test_arguments_without_leading_cc1_are_those_of_the_driver(dropped: list[str]) -> None:
    assert replay("-Oz", *dropped, "-fPIC") == [
        "-c",
        "-Oz",
        "-fPIC",
        "-fno-crash-diagnostics",
        "--no-default-config",
        *END[1:],
    ]


def test_driver_flags_for_cc1_and_the_assembler_are_kept() -> None:
    recorded = ["-march=native", "-Xclang", "-disable-free", "-Wa,--noexecstack", "-Xclang", "-I", "-Xclang", "@x"]
    recorded += ["-g"]
    replayed = ["-march=native", "-Wa,--noexecstack", "-g", "-Xclang", "-disable-free"]
    assert replay(*recorded) == ["-c", *replayed, "-fno-crash-diagnostics", "--no-default-config", *END[1:]]


CC1_ATTACKS = {
    "-load": ["-load", "/e/evil.so"],
    "-fpass-plugin=": ["-fpass-plugin=/e/evil.so"],
    "-plugin": ["-plugin", "evil"],
    "-mllvm -load": ["-mllvm", "-load=/e/evil.so"],
    "-mllvm --load": ["-mllvm", "--load", "-mllvm", "3"],
    "-mllvm -print-changed-dot-path": ["-mllvm", "-print-changed-dot-path=/e/evil"],
    "-mllvm -info-output-file": ["-mllvm", "-info-output-file=/e/out"],
    "-mllvm -pgo-test-profile-file": ["-mllvm", "-pgo-test-profile-file=/e/profile"],
    "-mllvm -ml-inliner-model-under-training": ["-mllvm", "-ml-inliner-model-under-training=/e"],
    "-mllvm -exec-on-ir-change": ["-mllvm", "-exec-on-ir-change=true"],
    "-mllvm --exec-on-ir-change": ["-mllvm", "--exec-on-ir-change", "-mllvm", "1"],
    "-mllvm -chr-module-list": ["-mllvm", "-chr-module-list=1"],
    "-mllvm -wholeprogramdevirt-write-summary": ["-mllvm", "-wholeprogramdevirt-write-summary=1"],
    "-mllvm -print-changed": ["-mllvm", "-print-changed=diff"],
    "-mllvm -training-log": ["-mllvm", "-training-log=1"],
    "-mllvm -stop-after": ["-mllvm", "-stop-after=1"],
    "-mllvm -help": ["-mllvm", "-help"],
    "-mllvm -regalloc": ["-mllvm", "-regalloc", "-mllvm", "/e/evil"],
    "-mllvm @/e/text": ["-mllvm", "-regalloc", "-mllvm", "@/e/text"],
    "-mllvm @/e/options": ["-mllvm", "@/e/options"],
    "-mllvm evil": ["-mllvm", "evil"],
    "-fprofile-instrument-use-path=": ["-fprofile-instrument-use-path=/e/profile"],
    "-fprofile-sample-use=": ["-fprofile-sample-use=/e/profile"],
    "-fbasic-block-sections=": ["-fbasic-block-sections=list=/e/list"],
    "-fmemory-profile-use=": ["-fmemory-profile-use=/e/profile"],
    "-fsanitize-coverage-allowlist=": ["-fsanitize-coverage-allowlist=/e/list"],
    "-mlink-bitcode-file": ["-mlink-bitcode-file", "/e/evil.bc"],
    "-ast-dump": ["-ast-dump"],
    "-fsyntax-only": ["-fsyntax-only"],
    "-fnot-known=": ["-fnot-known=1"],
    "--not-known": ["--not-known"],
    "@/e/options": ["@/e/options"],
    "@/e/value": ["-main-file-name", "@/e/value"],
    "-fdebug-prefix-map=@/e/map": ["-fdebug-prefix-map=@/e/map"],
    "other.bc": ["other.bc"],
}
DRIVER_ATTACKS = {
    "-fplugin=": ["-fplugin=/e/evil.so"],
    "-fplugin-arg-x-y": ["-fplugin-arg-x-y"],
    "-load": ["-Xclang", "-load", "-Xclang", "/e/evil.so"],
    "-Wa,-I/e": ["-Wa,-I/e"],
    "--config=": ["--config=/e/evil.cfg"],
    "-fprofile-use=": ["-fprofile-use=/e/profile"],
    "-Wa,-I/f": ["-Xassembler", "-I/f"],
    "-mllvm=": ["-mllvm=-load=/e/evil.so"],
    "-mtune=@/e/options": ["-mtune=@/e/options"],  # cc1 reads the file of the value
    "-ftabstop=@/e/options": ["-ftabstop=@/e/options"],
}


@pytest.mark.parametrize(("name", "attack"), CC1_ATTACKS.items())
def test_cc1_options_not_known_to_be_harmless_are_refused_by_name(name: str, attack: list[str]) -> None:
    for recorded in (["-Oz", *attack, "-triple", "x"], ["-Oz", *attack]):
        with pytest.raises(UserError) as caught:
            replay("-cc1", *recorded)
        assert caught.value.problem.splitlines()[1:] == [f"  {name}: corpus/m.bc"]
        assert ("--allow-cc1-option" in caught.value.remedy) == (name.startswith("-") and "@" not in name)


@pytest.mark.parametrize(("name", "attack"), DRIVER_ATTACKS.items())
def test_driver_options_not_known_to_be_harmless_are_refused_by_name(name: str, attack: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        replay("-Oz", *attack, "-g")
    assert caught.value.problem.splitlines()[1:] == [f"  {name}: corpus/m.bc"]


@pytest.mark.parametrize(("name", "attack"), CC1_ATTACKS.items())
def test_remedy_removes_refused_options_with_their_values(name: str, attack: list[str]) -> None:
    recorded = ["-cc1", "-O2", *attack, "-triple", "x", "-Oz"]
    with pytest.raises(UserError) as caught:
        replay(*recorded)
    words = shlex.split(caught.value.remedy.partition("--output NEW ")[2].partition(";")[0])
    assert words[:2] == ["--cmd-remove", name] and (words[2:3] == ["--cmd-add"]) == ("@" in name)
    edited, changed = CommandEdits(remove=(name,)).apply(recorded)
    replayed = replay(*edited)
    assert changed and replayed[-len(END) - 3 :] == ["-triple", "x", "-Oz", *END]
    assert not any("/e/" in word or "evil" in word or name.split()[-1] in word for word in replayed)


@pytest.mark.parametrize(("name", "attack"), CC1_ATTACKS.items())
def test_refused_options_but_no_response_files_can_be_allowed(name: str, attack: list[str]) -> None:
    allowed = [name, "-mllvm 3"]
    if "@" in name or not name.startswith("-"):
        with pytest.raises(UserError):
            replay("-cc1", *attack, "-Oz", allowed_options=allowed)
    else:
        assert replay("-cc1", *attack, "-Oz", allowed_options=allowed) == ["-cc1", *attack, "-Oz", *END]


def test_all_refused_options_of_a_corpus_are_in_one_error(tmp_path: Path) -> None:
    attacks = [["-load", "x"], ["-Oz"], ["-load", "y", "-new"], ["-load", "x"], ["-load", "x"]]
    modules = []
    for i, attack in enumerate(attacks):
        (tmp_path / f"{i}.o.cmd").write_bytes(b"\0".join(word.encode() for word in ["-cc1", *attack]) + b"\0")
        modules.append(Module(f"{i}.o", tmp_path))
    with pytest.raises(UserError) as caught:
        require_replayable(modules)
    assert caught.value.problem.splitlines()[1:] == ["  -load: 0.o, 2.o, 3.o and 1 more", "  -new: 2.o"]
    assert "--allow-cc1-option=-load --allow-cc1-option=-new" in caught.value.remedy
    require_replayable(modules, ("-load", "-new"))


def clang_options() -> list[tuple[str, str, bool, bool]]:
    """Return name, kind, whether cc1 has it and whether the driver has it, for each of clang's options."""
    headers = sorted(Path("/usr/lib").glob("llvm-*/include/clang/Driver/Options.inc"))
    if not headers:
        pytest.skip("libclang-dev is not installed")
    text = headers[-1].read_text().split("#endif // OPTION")[0]
    # Prefixes, name, identifier, kind, group, alias, alias arguments, flags, visibility.
    entry = r'^OPTION\(\w+, "([^"]+)", \w+, (\w+), \w+, \w+, (?:nullptr|"(?:[^"]|" ")*"), [^,]+, ([^,]+),'
    entries = re.findall(entry, text, re.MULTILINE)
    assert len(entries) > 2000
    return [(name, kind, "CC1Option" in where.split(" | "), "DefaultVis" in where) for name, kind, where in entries]


def test_values_of_kept_options_are_parsed_as_by_clang() -> None:
    """Otherwise clang would parse as an option what was checked as a value."""
    for name, kind, of_cc1, of_driver in clang_options():
        if not name.startswith("-") or kind in ("Input", "Unknown", "Group"):
            continue
        for is_cc1 in [True] * of_cc1 + [False] * of_driver:
            words = [name, "3"] if "Separate" in kind else [name]
            if name in ("-mllvm", "-Xclang"):
                continue
            try:
                selection = select_options([*words, "-O1"], is_cc1)
            except MissingValue:
                pytest.fail(f"{name} is parsed as an option with a separate value, but is a {kind}")
            if not selection.refused:
                assert selection.arguments in ([*words, "-O1"], ["-O1"]), (name, kind, is_cc1)


def test_kept_options_take_no_file_according_to_clang() -> None:
    """Checks words in the names of options with values, as a safety net for the manual allow list."""
    # Their values end up in the object, or are patterns.
    strings = set(
        """
        -main-file-name -object-file-name -object-file-name= -fdebug-compilation-dir -fprofile-filter-files=
        -fdebug-compilation-dir= -fcoverage-compilation-dir= -fprofile-instrument-path= -ffile-prefix-map=
        -fprofile-exclude-files= -ffile-compilation-dir= -fcs-profile-generate= -fprofile-generate=
        -fprofile-instr-generate= -fmemory-profile= -fprofile-instrument= -fprofile-update=
        -fprofile-function-groups= -fprofile-selected-function-group= -fsanitize-undefined-strip-path-components=
        """.split()
    )
    for name, kind, of_cc1, _ in clang_options():
        if (
            kind == "Flag"
            or not re.search(r"file|path|dir\b|plugin|\bload\b|list\b|index|script", name)
            or name in strings
        ):
            continue
        words = [f"{name}/e/x"] if "Joined" in kind else []
        words += ["/e/x"] if kind == "JoinedAndSeparate" else [name, "/e/x"] if kind == "Separate" else []
        selection = select_options([*words, "-O1"], of_cc1)
        assert selection.refused or selection.arguments == ["-O1"], name


def test_extra_flags_follow_the_thinlto_index() -> None:
    arguments = replay("-cc1", "-Oz", extra_flags=["-mllvm", "-x"], thinlto_index=Path("corpus/m.thinlto.bc"))
    thinlto = ["-fthinlto-index=corpus/m.thinlto.bc", "-mllvm", "-thinlto-assume-merged"]
    assert arguments == ["-cc1", "-Oz", *thinlto, "-emit-obj", "-mllvm", "-x", *END[1:]]


@pytest.mark.parametrize("recorded", [[], [""]])
def test_missing_recorded_arguments_are_refused(recorded: list[str]) -> None:
    with pytest.raises(UserError, match=r"m\.bc"):
        replay(*recorded)


@pytest.mark.parametrize("option", ["-mllvm", "-dependency-file", "-o"])
def test_option_without_its_value_is_refused(option: str) -> None:
    with pytest.raises(UserError, match=f"end after {option}"):
        replay("-cc1", "-Oz", option)


@pytest.mark.parametrize("name", ["app/tree.c", "lib/strings.cpp"])
def test_replay_generates_the_same_code(
    name: str, tiny_corpus: Corpus, sources: dict[str, str], clang: Path, tmp_path: Path
) -> None:
    """The text is bit-identical to what clang generates from the source without embedded bitcode."""
    (tmp_path / Path(name).name).write_text(sources[name])
    subprocess.run([clang, "-Oz", "-c", Path(name).name, "-o", "direct.o"], cwd=tmp_path, check=True)
    module = next(module for module in tiny_corpus if module.name == f"{name}.o")
    arguments = replay_arguments(module.arguments(), module.bitcode, "replayed.o")
    subprocess.run([clang, *arguments], cwd=tmp_path, check=True)
    direct, replayed = (Elf((tmp_path / f"{which}.o").read_bytes()) for which in ("direct", "replayed"))
    assert direct.section_sizes() == replayed.section_sizes()
    assert direct.section(".text") == replayed.section(".text")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([Path(name).name, "direct.o", "replayed.o"])


def test_without_output_code_is_generated_but_not_written() -> None:
    arguments = replay_arguments(["-cc1", "-Oz", "-o", "a.o", "-emit-obj"], BITCODE, None, ["-mllvm", "-x"])
    assert arguments == ["-cc1", "-Oz", "-emit-codegen-only", "-mllvm", "-x", "-x", "ir", "corpus/m.bc"]
