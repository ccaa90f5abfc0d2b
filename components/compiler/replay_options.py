"""Decides which recorded options a replay of a module takes over.

A corpus may come from a stranger, and compilers load plugins, read profiles and write side outputs where their options
say so. Hence a list of what may stay, by kind; whatever is neither on it nor known to be without use for bitcode is
refused by its name. Kinds that may stay: target and CPU, optimization, code generation, debug information and
diagnostics, as long as they take no file. Options with a value that the pattern of a flag would match are listed with
their values: taking one for a flag would have clang read the next argument otherwise than this module does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

# Without use for bitcode, or unwanted: options that write files beside the object or say where those go, that choose
# another kind of output, that turn a harmless remark about a replay into an error, or that belong to reading source.
_DROPPED = frozenset({
    "-MP", "-MG", "-MV", "-sys-header-deps", "-module-file-deps", "-emit-obj", "-S", "-emit-llvm", "-emit-llvm-bc",
    "-emit-pch", "-emit-codegen-only", "-Werror", "-pedantic-errors", "-print-stats", "-H", "-ftime-trace",
    "-stats-file-append", "-fstack-usage",
})  # fmt: skip
_DROPPED_OF_DRIVER = frozenset({
    "-c", "-M", "-MM", "-MD", "-MMD", "-save-temps", "-gsplit-dwarf", "-shared", "-static", "-static-libgcc",
    "-nostdlibinc", "-static-libstdc++", "-pie", "-no-pie", "-rdynamic", "-s",
})  # fmt: skip
_DROPPED_WITH_VALUE = frozenset({
    "-o", "-dependency-file", "-dependency-dot", "-header-include-file", "-opt-record-file", "-opt-record-passes",
    "-opt-record-format", "-split-dwarf-file", "-split-dwarf-output", "-serialize-diagnostic-file",
    "-diagnostic-log-file", "-include-pch", "-stack-usage-file", "-as-secure-log-file", "-dumpdir", "-mdebug-pass",
    "-resource-dir", "-working-directory", "-remap-file", "-chain-include", "-module-dependency-dir",
    "-fmodules-user-build-path", "-fmodule-implementation-of", "-fcuda-include-gpubinary", "-fopenmp-host-ir-file-path",
    "-internal-isystem", "-internal-externc-isystem", "-c-isystem", "-objc-isystem", "-objcxx-isystem",
    "--sysroot", "-Xpreprocessor", "-Xlinker", "-isystem-after", "-stdlib++-isystem", "-add-plugin",
})  # fmt: skip
_DROPPED_WITH_VALUE_OR_JOINED = (
    "-D", "-F", "-I", "-MF", "-MQ", "-MT", "-U", "-cxx-isystem", "-iapinotes-modules", "-idirafter", "-iframework",
    "-iframeworkwithsysroot", "-imacros", "-include", "-iprefix", "-iquote", "-isysroot", "-isystem", "-ivfsoverlay",
    "-iwithprefix", "-iwithprefixbefore", "-iwithsysroot", "-vfsoverlay", "-x",
)  # fmt: skip
_LIBRARIES = ("-L", "-l")
_DROPPED_JOINED_WITH_VALUE = "-plugin-arg-"
"""Plugins that look at source text, as Chromium's, have nothing to do; -load, which may bring passes, is refused."""
_DROPPED_PREFIXES = (
    "-fembed-bitcode", "-coverage-notes-file", "-coverage-data-file", "-stats-file", "-ftime-trace=", "-save-temps=",
    "-header-include-", "-fthinlto-index=", "-fthin-link-bitcode=", "-flto", "-Werror=", "-fembed-offload-object=",
    "-fmodule-file=", "-fmodule-map-file=", "-fmodule-output", "-fmodules-cache-path=", "-fmodules-embed-file=",
    "-fprebuilt-module-path=", "-fdepfile-entry=", "-foverride-record-layout=", "-frandomize-layout-seed-file=",
    "-fsanitize-blacklist=", "-fsanitize-ignorelist=", "-fsanitize-system-ignorelist=", "-fxray-always-instrument=",
    "-fxray-never-instrument=", "-fxray-attr-list=", "-fverify-debuginfo-preserve-export=", "-resource-dir=",
    "-working-directory=", "--embed-dir=", "--linker-option=", "--dependent-lib=", "--sysroot=", "-fuse-ld=",
    "-gsplit-dwarf=", "-Wl,", "-Wp,",
)  # fmt: skip
_DROPPED_OF_LLVM = "lto-embed-bitcode"
"""It made this bitcode; the replay needs no copy of it in its object."""

_KEPT = frozenset({
    "--crel", "-Qn", "-Qy", "-Qunused-arguments", "-ansi", "-cfguard", "-cfguard-no-checks",
    "-clear-ast-before-backend", "-no-clear-ast-before-backend", "-compress-debug-sections", "-debug-info-macro",
    "-disable-O0-optnone", "-disable-free", "-disable-lifetime-markers", "-disable-llvm-optzns", "-disable-llvm-passes",
    "-disable-llvm-verifier", "-disable-red-zone", "-discard-value-names", "-dwarf-explicit-import", "-dwarf-ext-refs",
    "-ehcontguard", "-emit-llvm-uselists", "-no-emit-llvm-uselists", "-enable-noundef-analysis",
    "-no-enable-noundef-analysis", "-enable-tlsdesc", "-integrated-as", "-llvm-verify-each", "-new-struct-path-tbaa",
    "-no-struct-path-tbaa", "-no-implicit-float", "-no-pthread", "-nobuiltininc", "-nodefaultlibs", "-nogpulib",
    "-nogpulibc", "-nostartfiles", "-nostdinc", "-nostdinc++", "-nostdlib", "-nostdsysteminc", "-pedantic", "-pg",
    "-pic-is-pie", "-pipe", "-pointer-tbaa", "-pthread", "-regcall4", "-relaxed-aliasing", "-static-define",
    "-traditional-cpp", "-undef", "-vectorize-loops", "-vectorize-slp", "-w", "-no-round-trip-args",
    "-round-trip-args", "-Wframe-larger-than", "-Wlarge-by-value-copy",
})  # fmt: skip
_KEPT_OF_CC1 = frozenset({"-no-integrated-as"})
"""Of clang itself it would start another program, the assembler."""
_KEPT_WITH_VALUE = frozenset({
    "-aux-target-cpu", "-aux-target-feature", "-aux-triple", "-darwin-target-variant-triple", "-default-function-attr",
    "-dwarf-debug-flags", "-exception-model", "-function-alignment", "-main-file-name", "-object-file-name",
    "-pic-level", "-record-command-line", "-source-date-epoch", "-stack-protector", "-stack-protector-buffer-size",
    "-target", "-target-abi", "-target-cpu", "-target-feature", "-target-linker-version", "-triple", "-tune-cpu",
    "-fbracket-depth", "-fconstant-string-class", "-fdebug-compilation-dir", "-fdiagnostics-format",
    "-fdiagnostics-show-category", "-ferror-limit", "-fexperimental-openacc-macro-override", "-fmodule-feature",
    "-fnew-alignment", "-ftabstop", "-ftrapv-handler",
    "-meabi", "-mfloat-abi", "-mfpmath", "-mlimit-float-precision", "-mregparm", "-mrelocation-model",
    "-msmall-data-limit", "-mthread-model", "-mtp",
})  # fmt: skip
# Names before "=". Values of them are words, numbers and strings that end up in the object, never files to open.
_KEPT_JOINED = frozenset({
    "--no-system-header-prefix", "--product-name", "--system-header-prefix", "--target", "-Wframe-larger-than",
    "-Wlarge-by-value-copy", "-complex-range", "-compress-debug-sections", "-coverage-version", "-cuid",
    "-darwin-target-variant-sdk-version", "-debug-info-kind", "-debugger-tuning", "-dwarf-version", "-exception-model",
    "-inline-asm", "-object-file-name", "-std", "-stdlib", "-target-sdk-version", "-triple", "-unwindlib", "-rtlib",
    "-vtordisp-mode", "-faddress-space-map-mangling", "-falign-functions", "-falign-loops", "-faltivec-src-compat",
    "-fapinotes-swift-version", "-fbfloat16-excess-precision", "-fbinutils-version", "-fbuild-session-timestamp",
    "-fc++-abi", "-fcaret-diagnostics-max-lines", "-fcf-protection", "-fcf-runtime-abi", "-fclang-abi-compat",
    "-fcomment-block-commands", "-fcomplex-arithmetic", "-fconstexpr-backtrace-limit", "-fconstexpr-depth",
    "-fconstexpr-steps", "-fcoverage-compilation-dir", "-fcoverage-prefix-map", "-fcs-profile-generate",
    "-fdebug-compilation-dir", "-fdebug-default-version", "-fdebug-prefix-map", "-fdefault-calling-conv",
    "-fdenormal-fp-math", "-fdenormal-fp-math-f32", "-fdiagnostics-color", "-fdiagnostics-format",
    "-fdiagnostics-hotness-threshold", "-fdiagnostics-misexpect-tolerance", "-femit-dwarf-unwind", "-ferror-limit",
    "-fexcess-precision", "-fexperimental-assignment-tracking", "-fexperimental-max-bitint-width",
    "-fexperimental-sanitize-metadata", "-fextend-arguments", "-ffile-compilation-dir", "-ffile-prefix-map",
    "-ffloat16-excess-precision", "-ffp-contract", "-ffp-eval-method", "-ffp-exception-behavior", "-ffp-model",
    "-ffuchsia-api-level", "-fgnuc-version", "-fgpu-default-stream", "-finline-limit", "-finline-max-stacksize",
    "-flax-vector-conversions", "-fmacro-backtrace-limit", "-fmacro-prefix-map", "-fmax-tokens", "-fmax-type-align",
    "-fmcdc-max-conditions", "-fmcdc-max-test-vectors", "-fmemory-profile", "-fmessage-length", "-fmodule-format",
    "-fmodule-name", "-fmodules-ignore-macro", "-fmodules-prune-after", "-fmodules-prune-interval",
    "-fms-compatibility-version", "-fms-memptr-rep", "-fms-runtime-lib", "-fmsc-version", "-fnew-alignment",
    "-fno-experimental-sanitize-metadata", "-fno-sanitize", "-fno-sanitize-coverage", "-fno-sanitize-recover",
    "-fno-sanitize-trap", "-fobjc-arc-cxxlib", "-fobjc-dispatch-method", "-fobjc-runtime", "-fopenmp",
    "-fopenmp-cuda-blocks-per-sm", "-fopenmp-cuda-number-of-sm", "-fopenmp-cuda-teams-reduction-recs-num",
    "-fopenmp-target-debug", "-fopenmp-targets", "-fopenmp-version", "-foperator-arrow-depth", "-fpack-struct",
    "-fpatchable-function-entry", "-fpatchable-function-entry-offset", "-fprofile-exclude-files",
    "-fprofile-filter-files", "-fprofile-function-groups", "-fprofile-generate", "-fprofile-instr-generate",
    "-fprofile-instrument", "-fprofile-instrument-path", "-fprofile-selected-function-group", "-fprofile-update",
    "-frandom-seed", "-frandomize-layout-seed", "-fsanitize", "-fsanitize-address-destructor",
    "-fsanitize-address-field-padding", "-fsanitize-address-use-after-return", "-fsanitize-coverage",
    "-fsanitize-coverage-type", "-fsanitize-hwaddress-abi", "-fsanitize-memory-track-origins", "-fsanitize-memtag-mode",
    "-fsanitize-recover", "-fsanitize-trap", "-fsanitize-undefined-strip-path-components", "-fshow-overloads",
    "-fspell-checking-limit", "-fstrict-flex-arrays", "-fswift-async-fp", "-fsymbol-partition", "-ftabstop",
    "-ftemplate-backtrace-limit", "-ftemplate-depth", "-ftime-report", "-ftime-trace-granularity", "-ftls-model",
    "-ftrap-function", "-ftrapv-handler", "-ftrivial-auto-var-init", "-ftrivial-auto-var-init-max-size",
    "-ftrivial-auto-var-init-stop-after", "-ftype-visibility", "-funwind-tables", "-fveclib", "-fvisibility",
    "-fvisibility-dllexport", "-fvisibility-externs-dllimport", "-fvisibility-externs-nodllstorageclass",
    "-fvisibility-global-new-delete", "-fvisibility-nodllstorageclass", "-fwarn-stack-size", "-fwchar-type",
    "-fxray-function-groups", "-fxray-instruction-threshold", "-fxray-instrumentation-bundle", "-fxray-modes",
    "-fxray-selected-function-group", "-fzero-call-used-regs",
})  # fmt: skip
_KEPT_PATTERN = re.compile(
    r"""
    -O[0-9a-z]*
    | -f[A-Za-z0-9][\w+-]*
    | -m[a-z0-9][\w+.-]* (=.*)?
    | -g[a-z0-9-]* (=[\w+,-]+)?
    | -fbasic-block-sections=(all|labels|none)  # list= takes a file
    | -cl-[a-z-]+ (=[\w.+]+)?
    | -[WR] [a-zA-Z][\w+-]* (=.*)?
    """,
    re.VERBOSE | re.DOTALL,
)
# Flags that choose another action, read or write files, or start programs; and the longer options behind a hyphen.
_REFUSED_PREFIXES = (
    "-fsyntax-only", "-fix", "-fplugin", "-fpass-plugin", "-fprofile-use", "-fprofile-instr-use",
    "-fprofile-sample-use", "-fauto-profile", "-fsave-optimization-record", "-fno-integrated-", "-fdriver-only",
    "-fproc-stat-report", "-fcrash-diagnostics", "-fget-definition", "-fintrinsic-modules-path", "-fmodule-header",
    "-filelist", "-filetype", "-framework", "-force_load",
    "-mlink-", "-mllvm", "-mmlir", "-migrate", "-module-", "-mt-migrate", "-multiply_defined", "-mzos-",
    "-gcc", "-gen-",
)  # fmt: skip
_ASSEMBLER_FLAGS = frozenset({"--noexecstack", "--fatal-warnings", "--no-warn", "-mrelax-relocations=no"})
"""What may follow -Wa, (clang passes it to its own assembler)."""

_LLVM_OPTION = re.compile(r"--?([A-Za-z0-9][\w.-]*)(?:=(.*))?", re.DOTALL)
_LLVM_VALUE = re.compile(r"[+-]?\d+(\.\d+)?|true|false|TRUE|FALSE")
_LLVM_WORDS = frozenset({"x86-asm-syntax", "x86-align-branch", "aarch64-neon-syntax", "align-all-functions"})
"""LLVM's options that may have a word as their value."""
_LLVM_REFUSED = frozenset({"load", "load-pass-plugin", "o"})
_LLVM_REFUSED_WORDS = frozenset({
    "file", "filename", "files", "path", "paths", "dir", "directory", "plugin", "plugins", "dot", "view", "output",
    "replay", "mlgo",
})  # fmt: skip
"""An option whose name has one of these words takes a file, or is for the training clang."""


@dataclass
class Selection:
    """What becomes of recorded options.

    Attributes:
        kept: in their order.
        refused: names of the options that are not on the list, as --allow-cc1-option takes them; an argument that is
            no option, or names a response file, as it is.
    """

    kept: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


class MissingValue(Exception):
    """The arguments end behind an option, `args[0]`, that needs a value."""


def select_options(
    recorded: Sequence[str],
    is_cc1: bool,
    allowed: Collection[str] = (),
    resolve: Callable[[str], str | None] = lambda argument: None,
) -> Selection:
    """Return what a replay takes over of a module's recorded arguments.

    Args:
        recorded: the arguments, without "-cc1".
        is_cc1: whether they are cc1's, not those of clang's driver.
        allowed: names of options that are kept though they are not on the list, as `Selection.refused` has them.
        resolve: of an argument that names a file of the corpus itself the one to replay it with; None of others.

    Raises:
        MissingValue: the arguments end inside an option.
    """
    selection = Selection()
    for_cc1: list[str] = []
    arguments = iter(recorded)
    dropped = _DROPPED if is_cc1 else _DROPPED | _DROPPED_OF_DRIVER
    dropped_or_joined = _DROPPED_WITH_VALUE_OR_JOINED + (() if is_cc1 else _LIBRARIES)
    after = ""  # "input": the driver puts it behind `-x <language>`; or the refused or allowed option before
    for argument in arguments:
        before, after = after, ""
        if not argument.startswith("-") and before in ("-x", "kept", "refused") and not argument.startswith("@"):
            if before == "kept":
                selection.kept.append(argument)
            continue
        if argument == "-Xclang" and not is_cc1:
            for_cc1.append(_value(arguments, argument))
        elif argument == "-mllvm":
            # Its value belongs to LLVM, whatever it looks like.
            _select_llvm_option(_value(arguments, argument), selection, allowed)
        elif argument in _DROPPED_WITH_VALUE or argument in dropped_or_joined:
            _value(arguments, argument)
            after = argument
        elif argument.startswith(_DROPPED_JOINED_WITH_VALUE):
            _value(arguments, argument)
        elif argument in dropped or argument.startswith(_DROPPED_PREFIXES):
            continue
        elif argument in _KEPT_WITH_VALUE:
            value = _value(arguments, argument)
            if value.startswith("@"):  # clang expands response files before it looks at anything
                selection.refused.append(value)
            selection.kept += [argument, value]
        elif is_cc1 and (own := resolve(argument)) is not None:
            selection.kept.append(own)
        elif _may_stay(argument, is_cc1):
            selection.kept.append(argument)
        elif argument.startswith(dropped_or_joined):
            after = "-x" if argument.startswith("-x") else ""
        elif argument.startswith("-") and _name(argument) in allowed:
            selection.kept.append(argument)
            after = "kept"
        else:
            selection.refused.append(_name(argument))
            after = "refused"
    if for_cc1:
        inner = select_options(for_cc1, True, allowed)
        selection.kept += [word for argument in inner.kept for word in ("-Xclang", argument)]
        selection.refused += inner.refused
    return selection


def group_options(arguments: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield each argument; with it the next one if that is its value.

    Raises:
        MissingValue: the arguments end inside an option.
    """
    with_value = {"-mllvm", "-Xclang"} | _DROPPED_WITH_VALUE | _KEPT_WITH_VALUE
    with_value.update(_DROPPED_WITH_VALUE_OR_JOINED)
    iterator = iter(arguments)
    for argument in iterator:
        has_value = argument in with_value or argument.startswith(_DROPPED_JOINED_WITH_VALUE)
        yield (argument, _value(iterator, argument)) if has_value else (argument,)


def _may_stay(argument: str, is_cc1: bool) -> bool:
    if argument in _KEPT or (is_cc1 and argument in _KEPT_OF_CC1):
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
    found = _LLVM_OPTION.fullmatch(option)
    if found is not None and found[1].startswith(_DROPPED_OF_LLVM):
        return
    if _llvm_may_stay(option, found) or (_llvm_name(option) in allowed and not option.startswith("@")):
        selection.kept += ["-mllvm", option]
    else:
        selection.refused.append(_llvm_name(option))


def _llvm_may_stay(option: str, found: re.Match[str] | None) -> bool:
    if found is None:
        return _LLVM_VALUE.fullmatch(option) is not None  # of the option before: -mllvm -threshold -mllvm 3
    name, value = found[1], found[2]
    if name in _LLVM_REFUSED or _LLVM_REFUSED_WORDS & set(re.split("[-_.]", name)):
        return False
    if value is None or _LLVM_VALUE.fullmatch(value):
        return True
    return name in _LLVM_WORDS and re.fullmatch(r"[\w+-]+", value) is not None


def _name(argument: str) -> str:
    """The option's name: with the "=" that its value follows."""
    name, equals, _ = argument.partition("=")
    return name + equals if argument.startswith("-") else argument


def _llvm_name(option: str) -> str:
    return f"-mllvm {option.partition('=')[0]}"


def _value(arguments: Iterator[str], option: str) -> str:
    try:
        return next(arguments)
    except StopIteration:
        raise MissingValue(option) from None
