"""The options of clang that a replay drops, keeps or refuses; replay_options.py applies these tables.

Options with a separate value that the pattern for flags would match are listed explicitly: if a replay took such an
option for a flag, clang would parse the next argument differently than the replay does.
"""

from __future__ import annotations

import re

# Useless for bitcode, or unwanted: options that write other files than the object or choose their paths, that select
# another kind of output, that turn a harmless warning about a replay into an error, or that concern reading source.
DROPPED = frozenset(
    """
    -MP -MG -MV -sys-header-deps -module-file-deps -emit-obj -S -emit-llvm -emit-llvm-bc -emit-pch
    -emit-codegen-only -Werror -pedantic-errors -print-stats -H -v -W -C -CC -P -dD -dI -dM -index-header-map
    -relocatable-pch -fno-integrated-as -no-integrated-as -ftime-trace -stats-file-append -fstack-usage
    """.split()
)
DROPPED_DRIVER = frozenset(
    """
    -c -M -MM -MD -MMD -save-temps -gsplit-dwarf -shared -static -static-libgcc -nostdlibinc -static-libstdc++ -pie
    -no-pie -rdynamic -s -static-pie -nolibc -nostdlib++ -canonical-prefixes -no-canonical-prefixes -gen-reproducer
    --coverage --save-stats --save-temps -save-stats --verbose --start-no-unused-arguments --end-no-unused-arguments
    """.split()
)
DROPPED_WITH_VALUE = frozenset(
    """
    -o -dependency-file -dependency-dot -header-include-file -opt-record-file -opt-record-passes -opt-record-format
    -split-dwarf-file -split-dwarf-output -serialize-diagnostic-file -diagnostic-log-file -include-pch
    -stack-usage-file -as-secure-log-file -dumpdir -mdebug-pass -resource-dir -working-directory -remap-file
    -chain-include -module-dependency-dir -fmodules-user-build-path -fmodule-implementation-of
    -fcuda-include-gpubinary -fopenmp-host-ir-file-path -internal-isystem -internal-externc-isystem -c-isystem
    -objc-isystem -objcxx-isystem --sysroot -Xpreprocessor -Xlinker -isystem-after -stdlib++-isystem -add-plugin
    --vfsoverlay --serialize-diagnostics -serialize-diagnostics -gcc-toolchain
    """.split()
)
DROPPED_WITH_VALUE_OR_JOINED = tuple(
    """
    -D -F -I -MF -MJ -MQ -MT -U -cxx-isystem -iapinotes-modules -idirafter -iframework -iframeworkwithsysroot
    -imacros -include -iprefix -iquote -isysroot -isystem -ivfsoverlay -iwithprefix -iwithprefixbefore -iwithsysroot
    -vfsoverlay -x
    """.split()
)
DROPPED_SEARCH_PATHS = ("-B", "-L", "-T", "-l")
"""Where the driver looks for programs, libraries and linker scripts, none of which a replay uses."""
DROPPED_JOINED_WITH_VALUE = "-plugin-arg-"
"""Plugins that inspect source, such as Chromium's, are useless here; -load, which may add passes, is refused."""
DROPPED_PREFIXES = tuple(
    """
    -fembed-bitcode -coverage-notes-file -coverage-data-file -stats-file -ftime-trace= -save-temps= --save-temps=
    -save-stats= --save-stats= -header-include- -fthinlto-index= -fthin-link-bitcode= -flto -Werror=
    -fembed-offload-object= -fmodule-file= -fmodule-map-file= -fmodule-output -fmodules-cache-path=
    -fmodules-embed-file= -fprebuilt-module-path= -fdepfile-entry= -foverride-record-layout=
    -frandomize-layout-seed-file= -fsanitize-blacklist= -fsanitize-ignorelist= -fsanitize-system-ignorelist=
    -fxray-always-instrument= -fxray-never-instrument= -fxray-attr-list= -fverify-debuginfo-preserve-export=
    -resource-dir= -working-directory= --embed-dir= --linker-option= --dependent-lib= --sysroot= -fuse-ld=
    -gsplit-dwarf= -fcrash-diagnostics -gen-reproducer= -fproc-stat-report -fsave-optimization-record
    -foptimization-record- --gcc-toolchain= --gcc-install-dir= --gcc-triple= --stdlib= --rtlib= --unwindlib= -Wl,
    -Wp,
    """.split()
)
KEPT = frozenset(
    """
    --crel -Qn -Qy -Qunused-arguments -ansi -cfguard -cfguard-no-checks -clear-ast-before-backend
    -no-clear-ast-before-backend -compress-debug-sections --compress-debug-sections -debug-forward-template-params
    -debug-info-macro -disable-O0-optnone -disable-free -disable-lifetime-markers -disable-llvm-optzns
    -disable-llvm-passes -disable-llvm-verifier -disable-red-zone -discard-value-names -dwarf-explicit-import
    -dwarf-ext-refs -ehcontguard -emit-llvm-uselists -no-emit-llvm-uselists -enable-noundef-analysis
    -no-enable-noundef-analysis -enable-tlsdesc -integrated-as -llvm-verify-each -new-struct-path-tbaa
    -no-struct-path-tbaa -no-implicit-float -no-pointer-tbaa --no-offloadlib -no-pthread -nobuiltininc
    -nodefaultlibs -nogpulib -nogpulibc -nostartfiles -nostdinc -nostdinc++ -nostdlib -nostdsysteminc -pedantic -pg
    -pic-is-pie -pipe -pointer-tbaa -pthread -regcall4 -relaxed-aliasing -static-define -traditional-cpp -undef
    -vectorize-loops -vectorize-slp -w -no-round-trip-args -round-trip-args -Wframe-larger-than
    -Wlarge-by-value-copy
    """.split()
)
KEPT_WITH_VALUE = frozenset(
    """
    --param -aux-target-cpu -aux-target-feature -aux-triple -darwin-target-variant-triple -default-function-attr
    -dwarf-debug-flags -exception-model -function-alignment -main-file-name -object-file-name -pic-level
    -record-command-line -source-date-epoch -stack-protector -stack-protector-buffer-size -target -target-abi
    -target-cpu -target-feature -target-linker-version -triple -tune-cpu -fbracket-depth -fconstant-string-class
    -fdebug-compilation-dir -fdiagnostics-format -fdiagnostics-show-category -ferror-limit
    -fexperimental-openacc-macro-override -fmodule-feature -fnew-alignment -ftabstop -ftrapv-handler -meabi
    -mfloat-abi -mfpmath -mlimit-float-precision -mregparm -mrelocation-model -msmall-data-limit -mthread-model -mtp
    """.split()
)
TRIPLE_OPTIONS = frozenset(
    """
    --target -aux-target-cpu -aux-triple -darwin-target-variant-triple -exception-model -target -target-abi
    -target-cpu -triple -tune-cpu
    """.split()
)
TRIPLE = re.compile(r"[\w.+-]*")
"""Their values: the driver looks for files of a target's name."""
# Names before "=". Their values are words, numbers and strings that end up in the object, never files to open.
KEPT_JOINED = frozenset(
    """
    --compress-debug-sections --no-system-header-prefix --param --product-name --system-header-prefix --target
    -Wframe-larger-than -Wlarge-by-value-copy -complex-range -compress-debug-sections -coverage-version -cuid
    -darwin-target-variant-sdk-version -debug-info-kind -debugger-tuning -dwarf-version -exception-model -inline-asm
    -object-file-name -std -stdlib -target-sdk-version -triple -unwindlib -rtlib -vtordisp-mode
    -faddress-space-map-mangling -falign-functions -falign-loops -faltivec-src-compat -fapinotes-swift-version
    -fbfloat16-excess-precision -fbinutils-version -fbuild-session-timestamp -fc++-static-destructors
    -fms-layout-compatibility -fc++-abi -fcaret-diagnostics-max-lines -fcf-protection -fcf-runtime-abi
    -fclang-abi-compat -fcomment-block-commands -fcomplex-arithmetic -fconstexpr-backtrace-limit -fconstexpr-depth
    -fconstexpr-steps -fcoverage-compilation-dir -fcoverage-prefix-map -fcs-profile-generate -fdebug-compilation-dir
    -fdebug-default-version -fdebug-prefix-map -fdefault-calling-conv -fdenormal-fp-math -fdenormal-fp-math-f32
    -fdiagnostics-color -fdiagnostics-format -fdiagnostics-hotness-threshold -fdiagnostics-misexpect-tolerance
    -femit-dwarf-unwind -ferror-limit -fexcess-precision -fexperimental-assignment-tracking
    -fexperimental-max-bitint-width -fexperimental-sanitize-metadata -fextend-arguments -ffile-compilation-dir
    -ffile-prefix-map -ffloat16-excess-precision -ffp-contract -ffp-eval-method -ffp-exception-behavior -ffp-model
    -ffuchsia-api-level -fgnuc-version -fgpu-default-stream -finline-limit -finline-max-stacksize
    -flax-vector-conversions -fmacro-backtrace-limit -fmacro-prefix-map -fmax-tokens -fmax-type-align
    -fmcdc-max-conditions -fmcdc-max-test-vectors -fmemory-profile -fmessage-length -fmodule-format -fmodule-name
    -fmodules-ignore-macro -fmodules-prune-after -fmodules-prune-interval -fms-compatibility-version -fms-memptr-rep
    -fms-runtime-lib -fmsc-version -fnew-alignment -fno-experimental-sanitize-metadata -fno-sanitize
    -fno-sanitize-coverage -fno-sanitize-recover -fno-sanitize-trap -fobjc-arc-cxxlib -fobjc-dispatch-method
    -fobjc-runtime -fopenmp -fopenmp-cuda-blocks-per-sm -fopenmp-cuda-number-of-sm
    -fopenmp-cuda-teams-reduction-recs-num -fopenmp-target-debug -fopenmp-targets -fopenmp-version
    -foperator-arrow-depth -fpack-struct -fpatchable-function-entry -fpatchable-function-entry-offset
    -fprofile-exclude-files -fprofile-filter-files -fprofile-function-groups -fprofile-generate
    -fprofile-instr-generate -fprofile-instrument -fprofile-instrument-path -fprofile-selected-function-group
    -fprofile-update -frandom-seed -frandomize-layout-seed -fsanitize -fsanitize-address-destructor
    -fsanitize-address-field-padding -fsanitize-address-use-after-return -fsanitize-coverage
    -fsanitize-coverage-type -fsanitize-hwaddress-abi -fsanitize-memory-track-origins -fsanitize-memtag-mode
    -fsanitize-merge -fno-sanitize-merge -fsanitize-annotate-debug-info -fno-sanitize-annotate-debug-info
    -fsanitize-skip-hot-cutoff -falloc-token-max -falloc-token-mode -fsanitize-recover -fsanitize-trap
    -fsanitize-undefined-strip-path-components -fshow-overloads -fspell-checking-limit -fstrict-flex-arrays
    -fswift-async-fp -fsymbol-partition -ftabstop -ftemplate-backtrace-limit -ftemplate-depth -ftime-report
    -ftime-trace-granularity -ftls-model -ftrap-function -ftrapv-handler -ftrivial-auto-var-init
    -ftrivial-auto-var-init-max-size -ftrivial-auto-var-init-stop-after -ftype-visibility -funwind-tables -fveclib
    -fvisibility -fvisibility-dllexport -fvisibility-externs-dllimport -fvisibility-externs-nodllstorageclass
    -fvisibility-global-new-delete -fvisibility-nodllstorageclass -fwarn-stack-size -fwchar-type
    -fxray-function-groups -fxray-instruction-threshold -fxray-instrumentation-bundle -fxray-modes
    -fxray-selected-function-group -fzero-call-used-regs
    """.split()
)
KEPT_PATTERN = re.compile(
    r"""
    -O[0-9a-z]*
    | -f[A-Za-z0-9][\w+-]*
    | -m[a-z0-9][\w+.-]* (=.*)?
    | -g[a-z0-9-]* (=[\w+,-]+)?
    | -fbasic-block-sections=(all|labels|none)  # list= reads a file
    | -cl-[a-z0-9-]+ (=[\w.+]+)?
    | -[WR] [a-zA-Z][\w+-]* (=.*)?
    """,
    re.VERBOSE | re.DOTALL,
)
# Flags that select another action, read or write files, or start programs; and longer options that start with these.
REFUSED_PREFIXES = tuple(
    """
    -fsyntax-only -fix -fplugin -fpass-plugin -fprofile-use -fprofile-instr-use -fprofile-sample-use -fauto-profile
    -fno-integrated- -fdriver-only -fget-definition -fintrinsic-modules-path -fmodule-header -filelist -filetype
    -framework -force_load -mlink- -mllvm -mmlir -migrate -module- -mt-migrate -multiply_defined -mzos- -gcc -gen-
    """.split()
)
ASSEMBLER_FLAG = re.compile(
    r"""
    --(noexecstack | fatal-warnings | no-warn | crel | (no-)?gsframe)
    | -(L | W | g | gdwarf-\d | mbig-obj | mno-warn-deprecated | mno-fsgsbase | mimplicit-it=\w+)
    | --?compress-debug-sections (=\w+)?
    | --?mrelax-relocations=(yes|no)
    | -m(arch|cpu|fpu|tune|abi)=[\w.+-]+
    """,
    re.VERBOSE,
)
"""Allowed values of -Wa, and -Xassembler, which clang passes to its integrated assembler."""
