"""Selects the recorded options of a module that a replay keeps.

A corpus may come from an untrusted source, and compiler options can load plugins, read profiles and write side
outputs. Hence an allow list by kind: an option that is neither on it nor known to be useless for bitcode is refused by
name. Allowed kinds: target and CPU, optimization, code generation, debug information and diagnostics, unless the option
takes a file. Options with a separate value that the pattern for flags would match are listed explicitly: if this module
took such an option for a flag, clang would parse the next argument differently than this module does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

# Useless for bitcode, or unwanted: options that write other files than the object or choose their paths, that select
# another kind of output, that turn a harmless warning about a replay into an error, or that concern reading source.
_DROPPED = frozenset(
    {
        "-MP",
        "-MG",
        "-MV",
        "-sys-header-deps",
        "-module-file-deps",
        "-emit-obj",
        "-S",
        "-emit-llvm",
        "-emit-llvm-bc",
        "-emit-pch",
        "-emit-codegen-only",
        "-Werror",
        "-pedantic-errors",
        "-print-stats",
        "-H",
        "-ftime-trace",
        "-stats-file-append",
        "-fstack-usage",
    }
)
_DROPPED_DRIVER = frozenset(
    {
        "-c",
        "-M",
        "-MM",
        "-MD",
        "-MMD",
        "-save-temps",
        "-gsplit-dwarf",
        "-shared",
        "-static",
        "-static-libgcc",
        "-nostdlibinc",
        "-static-libstdc++",
        "-pie",
        "-no-pie",
        "-rdynamic",
        "-s",
    }
)
_DROPPED_WITH_VALUE = frozenset(
    {
        "-o",
        "-dependency-file",
        "-dependency-dot",
        "-header-include-file",
        "-opt-record-file",
        "-opt-record-passes",
        "-opt-record-format",
        "-split-dwarf-file",
        "-split-dwarf-output",
        "-serialize-diagnostic-file",
        "-diagnostic-log-file",
        "-include-pch",
        "-stack-usage-file",
        "-as-secure-log-file",
        "-dumpdir",
        "-mdebug-pass",
        "-resource-dir",
        "-working-directory",
        "-remap-file",
        "-chain-include",
        "-module-dependency-dir",
        "-fmodules-user-build-path",
        "-fmodule-implementation-of",
        "-fcuda-include-gpubinary",
        "-fopenmp-host-ir-file-path",
        "-internal-isystem",
        "-internal-externc-isystem",
        "-c-isystem",
        "-objc-isystem",
        "-objcxx-isystem",
        "--sysroot",
        "-Xpreprocessor",
        "-Xlinker",
        "-isystem-after",
        "-stdlib++-isystem",
        "-add-plugin",
    }
)
_DROPPED_WITH_VALUE_OR_JOINED = (
    "-D",
    "-F",
    "-I",
    "-MF",
    "-MQ",
    "-MT",
    "-U",
    "-cxx-isystem",
    "-iapinotes-modules",
    "-idirafter",
    "-iframework",
    "-iframeworkwithsysroot",
    "-imacros",
    "-include",
    "-iprefix",
    "-iquote",
    "-isysroot",
    "-isystem",
    "-ivfsoverlay",
    "-iwithprefix",
    "-iwithprefixbefore",
    "-iwithsysroot",
    "-vfsoverlay",
    "-x",
)
_DROPPED_LIBRARIES = ("-L", "-l")
_DROPPED_JOINED_WITH_VALUE = "-plugin-arg-"
"""Plugins that inspect source, such as Chromium's, are useless here; -load, which may add passes, is refused."""
_DROPPED_PREFIXES = (
    "-fembed-bitcode",
    "-coverage-notes-file",
    "-coverage-data-file",
    "-stats-file",
    "-ftime-trace=",
    "-save-temps=",
    "-header-include-",
    "-fthinlto-index=",
    "-fthin-link-bitcode=",
    "-flto",
    "-Werror=",
    "-fembed-offload-object=",
    "-fmodule-file=",
    "-fmodule-map-file=",
    "-fmodule-output",
    "-fmodules-cache-path=",
    "-fmodules-embed-file=",
    "-fprebuilt-module-path=",
    "-fdepfile-entry=",
    "-foverride-record-layout=",
    "-frandomize-layout-seed-file=",
    "-fsanitize-blacklist=",
    "-fsanitize-ignorelist=",
    "-fsanitize-system-ignorelist=",
    "-fxray-always-instrument=",
    "-fxray-never-instrument=",
    "-fxray-attr-list=",
    "-fverify-debuginfo-preserve-export=",
    "-resource-dir=",
    "-working-directory=",
    "--embed-dir=",
    "--linker-option=",
    "--dependent-lib=",
    "--sysroot=",
    "-fuse-ld=",
    "-gsplit-dwarf=",
    "-Wl,",
    "-Wp,",
)
_DROPPED_LLVM_PREFIX = "lto-embed-bitcode"
"""This option produced the bitcode; the replay needs no copy of it in its object."""

_KEPT = frozenset(
    {
        "--crel",
        "-Qn",
        "-Qy",
        "-Qunused-arguments",
        "-ansi",
        "-cfguard",
        "-cfguard-no-checks",
        "-clear-ast-before-backend",
        "-no-clear-ast-before-backend",
        "-compress-debug-sections",
        "-debug-info-macro",
        "-disable-O0-optnone",
        "-disable-free",
        "-disable-lifetime-markers",
        "-disable-llvm-optzns",
        "-disable-llvm-passes",
        "-disable-llvm-verifier",
        "-disable-red-zone",
        "-discard-value-names",
        "-dwarf-explicit-import",
        "-dwarf-ext-refs",
        "-ehcontguard",
        "-emit-llvm-uselists",
        "-no-emit-llvm-uselists",
        "-enable-noundef-analysis",
        "-no-enable-noundef-analysis",
        "-enable-tlsdesc",
        "-integrated-as",
        "-llvm-verify-each",
        "-new-struct-path-tbaa",
        "-no-struct-path-tbaa",
        "-no-implicit-float",
        "-no-pthread",
        "-nobuiltininc",
        "-nodefaultlibs",
        "-nogpulib",
        "-nogpulibc",
        "-nostartfiles",
        "-nostdinc",
        "-nostdinc++",
        "-nostdlib",
        "-nostdsysteminc",
        "-pedantic",
        "-pg",
        "-pic-is-pie",
        "-pipe",
        "-pointer-tbaa",
        "-pthread",
        "-regcall4",
        "-relaxed-aliasing",
        "-static-define",
        "-traditional-cpp",
        "-undef",
        "-vectorize-loops",
        "-vectorize-slp",
        "-w",
        "-no-round-trip-args",
        "-round-trip-args",
        "-Wframe-larger-than",
        "-Wlarge-by-value-copy",
    }
)
_KEPT_CC1 = frozenset({"-no-integrated-as"})
"""For the driver, this option would start another program, the assembler."""
_KEPT_WITH_VALUE = frozenset(
    {
        "-aux-target-cpu",
        "-aux-target-feature",
        "-aux-triple",
        "-darwin-target-variant-triple",
        "-default-function-attr",
        "-dwarf-debug-flags",
        "-exception-model",
        "-function-alignment",
        "-main-file-name",
        "-object-file-name",
        "-pic-level",
        "-record-command-line",
        "-source-date-epoch",
        "-stack-protector",
        "-stack-protector-buffer-size",
        "-target",
        "-target-abi",
        "-target-cpu",
        "-target-feature",
        "-target-linker-version",
        "-triple",
        "-tune-cpu",
        "-fbracket-depth",
        "-fconstant-string-class",
        "-fdebug-compilation-dir",
        "-fdiagnostics-format",
        "-fdiagnostics-show-category",
        "-ferror-limit",
        "-fexperimental-openacc-macro-override",
        "-fmodule-feature",
        "-fnew-alignment",
        "-ftabstop",
        "-ftrapv-handler",
        "-meabi",
        "-mfloat-abi",
        "-mfpmath",
        "-mlimit-float-precision",
        "-mregparm",
        "-mrelocation-model",
        "-msmall-data-limit",
        "-mthread-model",
        "-mtp",
    }
)
# Names before "=". Their values are words, numbers and strings that end up in the object, never files to open.
_KEPT_JOINED = frozenset(
    {
        "--no-system-header-prefix",
        "--product-name",
        "--system-header-prefix",
        "--target",
        "-Wframe-larger-than",
        "-Wlarge-by-value-copy",
        "-complex-range",
        "-compress-debug-sections",
        "-coverage-version",
        "-cuid",
        "-darwin-target-variant-sdk-version",
        "-debug-info-kind",
        "-debugger-tuning",
        "-dwarf-version",
        "-exception-model",
        "-inline-asm",
        "-object-file-name",
        "-std",
        "-stdlib",
        "-target-sdk-version",
        "-triple",
        "-unwindlib",
        "-rtlib",
        "-vtordisp-mode",
        "-faddress-space-map-mangling",
        "-falign-functions",
        "-falign-loops",
        "-faltivec-src-compat",
        "-fapinotes-swift-version",
        "-fbfloat16-excess-precision",
        "-fbinutils-version",
        "-fbuild-session-timestamp",
        "-fc++-abi",
        "-fcaret-diagnostics-max-lines",
        "-fcf-protection",
        "-fcf-runtime-abi",
        "-fclang-abi-compat",
        "-fcomment-block-commands",
        "-fcomplex-arithmetic",
        "-fconstexpr-backtrace-limit",
        "-fconstexpr-depth",
        "-fconstexpr-steps",
        "-fcoverage-compilation-dir",
        "-fcoverage-prefix-map",
        "-fcs-profile-generate",
        "-fdebug-compilation-dir",
        "-fdebug-default-version",
        "-fdebug-prefix-map",
        "-fdefault-calling-conv",
        "-fdenormal-fp-math",
        "-fdenormal-fp-math-f32",
        "-fdiagnostics-color",
        "-fdiagnostics-format",
        "-fdiagnostics-hotness-threshold",
        "-fdiagnostics-misexpect-tolerance",
        "-femit-dwarf-unwind",
        "-ferror-limit",
        "-fexcess-precision",
        "-fexperimental-assignment-tracking",
        "-fexperimental-max-bitint-width",
        "-fexperimental-sanitize-metadata",
        "-fextend-arguments",
        "-ffile-compilation-dir",
        "-ffile-prefix-map",
        "-ffloat16-excess-precision",
        "-ffp-contract",
        "-ffp-eval-method",
        "-ffp-exception-behavior",
        "-ffp-model",
        "-ffuchsia-api-level",
        "-fgnuc-version",
        "-fgpu-default-stream",
        "-finline-limit",
        "-finline-max-stacksize",
        "-flax-vector-conversions",
        "-fmacro-backtrace-limit",
        "-fmacro-prefix-map",
        "-fmax-tokens",
        "-fmax-type-align",
        "-fmcdc-max-conditions",
        "-fmcdc-max-test-vectors",
        "-fmemory-profile",
        "-fmessage-length",
        "-fmodule-format",
        "-fmodule-name",
        "-fmodules-ignore-macro",
        "-fmodules-prune-after",
        "-fmodules-prune-interval",
        "-fms-compatibility-version",
        "-fms-memptr-rep",
        "-fms-runtime-lib",
        "-fmsc-version",
        "-fnew-alignment",
        "-fno-experimental-sanitize-metadata",
        "-fno-sanitize",
        "-fno-sanitize-coverage",
        "-fno-sanitize-recover",
        "-fno-sanitize-trap",
        "-fobjc-arc-cxxlib",
        "-fobjc-dispatch-method",
        "-fobjc-runtime",
        "-fopenmp",
        "-fopenmp-cuda-blocks-per-sm",
        "-fopenmp-cuda-number-of-sm",
        "-fopenmp-cuda-teams-reduction-recs-num",
        "-fopenmp-target-debug",
        "-fopenmp-targets",
        "-fopenmp-version",
        "-foperator-arrow-depth",
        "-fpack-struct",
        "-fpatchable-function-entry",
        "-fpatchable-function-entry-offset",
        "-fprofile-exclude-files",
        "-fprofile-filter-files",
        "-fprofile-function-groups",
        "-fprofile-generate",
        "-fprofile-instr-generate",
        "-fprofile-instrument",
        "-fprofile-instrument-path",
        "-fprofile-selected-function-group",
        "-fprofile-update",
        "-frandom-seed",
        "-frandomize-layout-seed",
        "-fsanitize",
        "-fsanitize-address-destructor",
        "-fsanitize-address-field-padding",
        "-fsanitize-address-use-after-return",
        "-fsanitize-coverage",
        "-fsanitize-coverage-type",
        "-fsanitize-hwaddress-abi",
        "-fsanitize-memory-track-origins",
        "-fsanitize-memtag-mode",
        "-fsanitize-recover",
        "-fsanitize-trap",
        "-fsanitize-undefined-strip-path-components",
        "-fshow-overloads",
        "-fspell-checking-limit",
        "-fstrict-flex-arrays",
        "-fswift-async-fp",
        "-fsymbol-partition",
        "-ftabstop",
        "-ftemplate-backtrace-limit",
        "-ftemplate-depth",
        "-ftime-report",
        "-ftime-trace-granularity",
        "-ftls-model",
        "-ftrap-function",
        "-ftrapv-handler",
        "-ftrivial-auto-var-init",
        "-ftrivial-auto-var-init-max-size",
        "-ftrivial-auto-var-init-stop-after",
        "-ftype-visibility",
        "-funwind-tables",
        "-fveclib",
        "-fvisibility",
        "-fvisibility-dllexport",
        "-fvisibility-externs-dllimport",
        "-fvisibility-externs-nodllstorageclass",
        "-fvisibility-global-new-delete",
        "-fvisibility-nodllstorageclass",
        "-fwarn-stack-size",
        "-fwchar-type",
        "-fxray-function-groups",
        "-fxray-instruction-threshold",
        "-fxray-instrumentation-bundle",
        "-fxray-modes",
        "-fxray-selected-function-group",
        "-fzero-call-used-regs",
    }
)
_KEPT_PATTERN = re.compile(
    r"""
    -O[0-9a-z]*
    | -f[A-Za-z0-9][\w+-]*
    | -m[a-z0-9][\w+.-]* (=.*)?
    | -g[a-z0-9-]* (=[\w+,-]+)?
    | -fbasic-block-sections=(all|labels|none)  # list= reads a file
    | -cl-[a-z-]+ (=[\w.+]+)?
    | -[WR] [a-zA-Z][\w+-]* (=.*)?
    """,
    re.VERBOSE | re.DOTALL,
)
# Flags that select another action, read or write files, or start programs; and longer options that start with these.
_REFUSED_PREFIXES = (
    "-fsyntax-only",
    "-fix",
    "-fplugin",
    "-fpass-plugin",
    "-fprofile-use",
    "-fprofile-instr-use",
    "-fprofile-sample-use",
    "-fauto-profile",
    "-fsave-optimization-record",
    "-fno-integrated-",
    "-fdriver-only",
    "-fproc-stat-report",
    "-fcrash-diagnostics",
    "-fget-definition",
    "-fintrinsic-modules-path",
    "-fmodule-header",
    "-filelist",
    "-filetype",
    "-framework",
    "-force_load",
    "-mlink-",
    "-mllvm",
    "-mmlir",
    "-migrate",
    "-module-",
    "-mt-migrate",
    "-multiply_defined",
    "-mzos-",
    "-gcc",
    "-gen-",
)
_ASSEMBLER_FLAGS = frozenset({"--noexecstack", "--fatal-warnings", "--no-warn", "-mrelax-relocations=no"})
"""Allowed values of -Wa, (clang passes them to its integrated assembler)."""

_LLVM_OPTION = re.compile(r"--?([A-Za-z0-9][\w.-]*)(?:=(.*))?", re.DOTALL)
_LLVM_VALUE = re.compile(r"[+-]?\d+(\.\d+)?|true|false|TRUE|FALSE")
_LLVM_WITH_WORD = frozenset({"x86-asm-syntax", "x86-align-branch", "aarch64-neon-syntax", "align-all-functions"})
"""LLVM options that may have a word as their value."""
_LLVM_REFUSED = frozenset({"load", "load-pass-plugin", "o"})
_LLVM_REFUSED_WORDS = frozenset(
    {
        "file",
        "filename",
        "files",
        "path",
        "paths",
        "dir",
        "directory",
        "plugin",
        "plugins",
        "dot",
        "view",
        "output",
        "replay",
        "mlgo",
    }
)
"""Options whose names contain one of these words take a file, or are options of the training clang."""


@dataclass
class Selection:
    """The recorded options that are kept and those that are refused.

    Attributes:
        kept: kept arguments, in their order.
        refused: names of the options that are not on the allow list, as --allow-cc1-option takes them; arguments that
            are not options or that name a response file are listed unchanged.
    """

    kept: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


class MissingValue(Exception):
    """The arguments end after an option, `args[0]`, that requires a value."""


def select_options(
    recorded: Sequence[str],
    is_cc1: bool,
    allowed: Collection[str] = (),
    resolve: Callable[[str], str | None] = lambda argument: None,
) -> Selection:
    """Select the recorded arguments of a module that a replay keeps.

    Args:
        recorded: the arguments, without "-cc1".
        is_cc1: whether these are arguments of cc1, as opposed to clang's driver.
        allowed: names of options that are kept although they are not on the allow list, as in `Selection.refused`.
        resolve: maps an argument that names a file of the corpus to the argument for the replay, any other to None.

    Raises:
        MissingValue: the arguments end inside an option.
    """
    selection = Selection()
    for_cc1: list[str] = []
    arguments = iter(recorded)
    dropped = _DROPPED if is_cc1 else _DROPPED | _DROPPED_DRIVER
    dropped_or_joined = _DROPPED_WITH_VALUE_OR_JOINED + (() if is_cc1 else _DROPPED_LIBRARIES)
    # What the previous argument was: "-x" may be followed by the driver's input file, "kept" and "refused" options by
    # their value.
    previous = ""
    for argument in arguments:
        before, previous = previous, ""
        if not argument.startswith("-") and before in ("-x", "kept", "refused") and not argument.startswith("@"):
            if before == "kept":
                selection.kept.append(argument)
            continue
        if argument == "-Xclang" and not is_cc1:
            for_cc1.append(_value(arguments, argument))
        elif argument == "-mllvm":
            # The value is an LLVM option, whatever it looks like.
            _select_llvm_option(_value(arguments, argument), selection, allowed)
        elif argument in _DROPPED_WITH_VALUE or argument in dropped_or_joined:
            _value(arguments, argument)
            previous = argument
        elif argument.startswith(_DROPPED_JOINED_WITH_VALUE):
            _value(arguments, argument)
        elif argument in dropped or argument.startswith(_DROPPED_PREFIXES):
            continue
        elif argument in _KEPT_WITH_VALUE:
            value = _value(arguments, argument)
            if value.startswith("@"):  # clang expands response files before it parses options
                selection.refused.append(value)
            selection.kept += [argument, value]
        elif is_cc1 and (resolved := resolve(argument)) is not None:
            selection.kept.append(resolved)
        elif _is_allowed(argument, is_cc1):
            selection.kept.append(argument)
        elif argument.startswith(dropped_or_joined):
            previous = "-x" if argument.startswith("-x") else ""
        elif argument.startswith("-") and _name(argument) in allowed:
            selection.kept.append(argument)
            previous = "kept"
        else:
            selection.refused.append(_name(argument))
            previous = "refused"
    if for_cc1:
        inner = select_options(for_cc1, True, allowed)
        selection.kept += [word for argument in inner.kept for word in ("-Xclang", argument)]
        selection.refused += inner.refused
    return selection


def group_options(arguments: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield each argument together with its value, if it has one.

    Raises:
        MissingValue: the arguments end inside an option.
    """
    with_value = {"-mllvm", "-Xclang"} | _DROPPED_WITH_VALUE | _KEPT_WITH_VALUE
    with_value.update(_DROPPED_WITH_VALUE_OR_JOINED)
    iterator = iter(arguments)
    for argument in iterator:
        has_value = argument in with_value or argument.startswith(_DROPPED_JOINED_WITH_VALUE)
        yield (argument, _value(iterator, argument)) if has_value else (argument,)


def _is_allowed(argument: str, is_cc1: bool) -> bool:
    if argument in _KEPT or (is_cc1 and argument in _KEPT_CC1):
        return True
    if argument.startswith("-Wa,"):
        return not is_cc1 and set(argument.split(",")[1:]) <= _ASSEMBLER_FLAGS
    name, equals, _ = argument.partition("=")
    if equals and name in _KEPT_JOINED:
        return True
    if name.startswith(_REFUSED_PREFIXES):
        return False
    return _KEPT_PATTERN.fullmatch(argument) is not None


def _select_llvm_option(option: str, selection: Selection, allowed: Collection[str]) -> None:
    match = _LLVM_OPTION.fullmatch(option)
    if match is not None and match[1].startswith(_DROPPED_LLVM_PREFIX):
        return
    if _is_allowed_llvm(option, match) or (_llvm_name(option) in allowed and not option.startswith("@")):
        selection.kept += ["-mllvm", option]
    else:
        selection.refused.append(_llvm_name(option))


def _is_allowed_llvm(option: str, match: re.Match[str] | None) -> bool:
    if match is None:
        return _LLVM_VALUE.fullmatch(option) is not None  # the value of the option before: -mllvm -threshold -mllvm 3
    name, value = match[1], match[2]
    if name in _LLVM_REFUSED or _LLVM_REFUSED_WORDS & set(re.split("[-_.]", name)):
        return False
    if value is None or _LLVM_VALUE.fullmatch(value):
        return True
    return name in _LLVM_WITH_WORD and re.fullmatch(r"[\w+-]+", value) is not None


def _name(argument: str) -> str:
    """Return the option's name, including the "=" if a value follows; other arguments unchanged."""
    name, equals, _ = argument.partition("=")
    return name + equals if argument.startswith("-") else argument


def _llvm_name(option: str) -> str:
    return f"-mllvm {option.partition('=')[0]}"


def _value(arguments: Iterator[str], option: str) -> str:
    try:
        return next(arguments)
    except StopIteration:
        raise MissingValue(option) from None
