"""Compiler flags of public build files, which a corpus of these projects records.

The names of the flags are from Chromium's build/config/{compiler,linux,android,fuchsia,sanitizers,c++}/BUILD.gn,
Fuchsia's build/config/{,zircon,fuchsia,x64,arm64,sanitizers}/BUILD.gn, AOSP's build/soong/cc/{config,sanitize,afdo},
the Linux kernel's Makefile, arch/{x86,arm64,arm}/Makefile and
scripts/Makefile.{debug,warn,kasan,kcsan,kcov,ubsan,autofdo}, LLVM's HandleLLVMOptions.cmake and Firefox's
build/moz.configure. Flags that clang 19 or 22 rejects, and those that need another package
(plugins, profiles), are left out. Each set is one that the compiler takes together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

X86, AARCH64, ARM = "x86_64-linux-gnu", "aarch64-linux-gnu", "armv7a-linux-gnueabihf"


@dataclass(frozen=True)
class FlagSet:
    """Flags of one kind of object of a project.

    Attributes:
        language: of the source that is compiled with them.
        level: optimization level.
        flags: further flags, separated by blanks.
    """

    name: str
    language: Literal["c", "c++"]
    level: str
    flags: str
    target: str = X86


_CHROMIUM = (
    "-fno-delete-null-pointer-checks -fno-ident -fno-strict-aliasing --param=ssp-buffer-size=4 -fstack-protector "
    "-funwind-tables -fPIC -pthread -pipe -fcolor-diagnostics -fmerge-all-constants -fno-sized-deallocation "
    "-fcrash-diagnostics-dir=crashreports -fcrash-diagnostics=all -mllvm -instcombine-lower-dbg-declare=0 -mllvm "
    "-split-threshold-for-reg-with-hint=0 -ffp-contract=off -fcomplete-member-pointers -ffile-compilation-dir=. "
    "-no-canonical-prefixes -Wall -Wextra -Werror -Wno-unused-parameter -Wimplicit-fallthrough "
    "-Wunreachable-code-aggressive -Wthread-safety -fdata-sections -ffunction-sections -fno-unique-section-names "
    "-fno-math-errno -fno-omit-frame-pointer -fvisibility=hidden -fno-builtin-abs -Wno-trigraphs -U__STRICT_ANSI__ "
    "-D_FORTIFY_SOURCE=2 -MMD -MF o.d"
)
_CHROMIUM_CXX = (
    f"{_CHROMIUM} -std=c++20 -fno-exceptions -fno-rtti -fvisibility-inlines-hidden -nostdinc++ -fno-trigraphs "
    "-fno-aligned-new"
)
_FUCHSIA = (
    "-Wall -Wextra -Wconversion -Wextra-semi -Wnewline-eof -Wno-sign-conversion -Wno-unknown-warning-option "
    "-Werror -Wno-error=deprecated-declarations -Wa,--fatal-warnings -Wthread-safety -fcolor-diagnostics "
    "-fcrash-diagnostics-dir=clang-crashreports -fcrash-diagnostics=all -gen-reproducer=error -fstack-size-section "
    "-ffp-contract=off -ffile-compilation-dir=. -no-canonical-prefixes -fdata-sections -ffunction-sections -g3 "
    "-gdwarf-5 -grecord-gcc-switches -gz=zstd -Xclang -debug-info-kind=constructor -fno-omit-frame-pointer "
    "-momit-leaf-frame-pointer -ftrivial-auto-var-init=pattern -fvisibility=hidden -fno-finite-loops "
    "-ftemplate-backtrace-limit=0 -fno-common"
)
_FUCHSIA_KERNEL = (
    f"{_FUCHSIA} -std=c++20 -fvisibility-inlines-hidden -ffreestanding -fno-exceptions -fno-rtti "
    "-fno-threadsafe-statics -nostdinc++ -fsized-deallocation -fno-sanitize=safe-stack -fno-stack-protector "
    "-fno-sanitize=fuzzer -Xclang -fexperimental-omit-vtable-rtti -mno-incremental-linker-compatible -fpie"
)
_AOSP = (
    "-fdebug-prefix-map=/proc/self/cwd= -ffunction-sections -fdata-sections -fno-short-enums -funwind-tables "
    "-fstack-protector-strong -no-canonical-prefixes -Wall -Wno-multichar -Wextra -Werror -Werror=return-type "
    "-Werror=address -fno-strict-aliasing -fdebug-default-version=5 -fcolor-diagnostics -ffp-contract=off "
    "-fmessage-length=0 -fno-exceptions -faddrsig -fPIC -ftrivial-auto-var-init=zero -g -gsimple-template-names "
    "-gz=zstd -DNDEBUG -UDEBUG -fuse-init-array -mllvm -jump-is-expensive=false -mllvm "
    "-instcombine-lower-dbg-declare=0 -fvisibility=hidden -finline-functions -fwrapv"
)
_KERNEL = (
    "-nostdinc -D__KERNEL__ -fmacro-prefix-map=./= -std=gnu11 -fshort-wchar -funsigned-char -fno-common -fno-PIE "
    "-fno-strict-aliasing -fms-extensions -fno-delete-null-pointer-checks -fno-asynchronous-unwind-tables "
    "-fno-strict-overflow -fno-stack-check -fno-optimize-sibling-calls -fno-omit-frame-pointer "
    "-fstack-protector-strong -fstrict-flex-arrays=3 -ftrivial-auto-var-init=zero -fno-stack-clash-protection "
    "-Wall -Wextra -Wundef -Werror=strict-prototypes -Werror=date-time -Werror=incompatible-pointer-types "
    "-Wno-trigraphs -Wno-gnu -Wno-microsoft-anon-tag -Wframe-larger-than=2048 -Wno-sign-compare -Wp,-MMD,.o.d -g "
    "-gdwarf-5 -gz=zlib -fdebug-info-for-profiling -pipe"
)
_KERNEL_X86 = (
    f"{_KERNEL} -mno-sse -mno-mmx -mno-sse2 -mno-3dnow -mno-avx -m64 -mno-80387 -mstack-alignment=8 "
    "-mskip-rax-setup -mtune=generic -mno-red-zone -mcmodel=kernel -falign-loops=1 -falign-functions=16 "
    "-msoft-float"
)
_KERNEL_ARM64 = (
    f"{_KERNEL} -mgeneral-regs-only -fno-unwind-tables -mbranch-protection=pac-ret+bti -mlittle-endian -ffixed-x18 "
    "-mstack-protector-guard=sysreg -mstack-protector-guard-reg=sp_el0 -mstack-protector-guard-offset=1288"
)
_LLVM = (
    "-fPIC -fno-semantic-interposition -fvisibility-inlines-hidden -Werror=date-time "
    "-Werror=unguarded-availability-new -Wall -Wextra -Wno-unused-parameter -Wwrite-strings -Wcast-qual "
    "-Wmissing-field-initializers -pedantic -Wno-long-long -Wc++98-compat-extra-semi -Wimplicit-fallthrough "
    "-Wcovered-switch-default -Wno-noexcept-type -Wnon-virtual-dtor -Wdelete-non-virtual-dtor -Wsuggest-override "
    "-Wstring-conversion -Wno-pass-failed -Wmisleading-indentation -Wctad-maybe-unsupported -fdiagnostics-color "
    "-ffunction-sections -fdata-sections -fno-exceptions -funwind-tables -fno-rtti -std=c++17 -DNDEBUG "
    "-D_GNU_SOURCE -D__STDC_CONSTANT_MACROS -ffile-prefix-map=/src=. -no-canonical-prefixes"
)
_FIREFOX = (
    "-fno-sized-deallocation -fno-aligned-new -ffunction-sections -fdata-sections -fno-math-errno -pthread -pipe "
    "-fno-strict-aliasing -fPIC -fvisibility=hidden -fvisibility-inlines-hidden -ffp-contract=off -fno-exceptions "
    "-fno-rtti -fomit-frame-pointer -funwind-tables -fstack-protector-strong -fstack-clash-protection "
    "-ftrivial-auto-var-init=pattern -fcrash-diagnostics-dir=crashes -fdebug-prefix-map=/src/=./ "
    "-fmacro-prefix-map=/src/=./ -gdwarf-4 -g -gz -Wa,--noexecstack -std=gnu++17 -Wall -Wempty-body "
    "-Wformat-type-confusion -Wthread-safety -Wno-error=deprecated -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 "
    "-fno-crash-diagnostics -Qunused-arguments"
)

FLAG_SETS = (
    # Chromium
    FlagSet(
        "chromium-linux",
        "c++",
        "-Oz",
        f"{_CHROMIUM_CXX} -msse3 -mllvm -enable-machine-outliner=never -g2 -gdwarf-4 -ggnu-pubnames "
        "-gsimple-template-names -Xclang -debug-info-kind=limited -Xclang -fuse-ctor-homing "
        "-ftrivial-auto-var-init=pattern -fsplit-lto-unit -fno-standalone-debug -ftime-trace "
        "-femit-dwarf-unwind=no-compact-unwind -fexperimental-relative-c++-abi-vtables",
    ),
    FlagSet(
        "chromium-c", "c", "-O2", f"{_CHROMIUM} -std=c11 -m64 -g1 -gline-tables-only -gz -H -fshow-skipped-includes -v"
    ),
    FlagSet(
        "chromium-split-dwarf",
        "c++",
        "-Os",
        f"{_CHROMIUM_CXX} -g2 -gdwarf-5 -gsplit-dwarf -gz=zlib -gdwarf-aranges -gcolumn-info "
        "-fdebug-info-for-profiling -fno-asynchronous-unwind-tables -fno-unwind-tables "
        "-finstrument-function-entry-bare",
    ),
    FlagSet(
        "chromium-android-arm",
        "c++",
        "-Oz",
        f"{_CHROMIUM_CXX} -march=armv7-a -mfloat-abi=softfp -mtune=generic-armv7-a -mfpu=neon -mthumb -fno-short-enums",
        target="armv7a-linux-androideabi21",
    ),
    FlagSet(
        "chromium-android-arm64",
        "c++",
        "-Oz",
        f"{_CHROMIUM_CXX} -mbranch-protection=pac-ret -mno-outline -fno-global-isel -ftrivial-auto-var-init=zero",
        target="aarch64-linux-android21",
    ),
    FlagSet(
        "chromium-asan",
        "c++",
        "-O1",
        "-fsanitize=address -fno-inline-functions -fno-inline -fno-omit-frame-pointer -gline-tables-only "
        "-gcolumn-info "
        "-fsanitize=bool,bounds,null,object-size,return,shift,unreachable,vla-bound,signed-integer-overflow "
        "-fno-sanitize-recover=undefined -fsanitize-coverage=trace-pc-guard -fno-sanitize-coverage=pc-table -mllvm "
        "-sanitizer-coverage-prune-blocks=1 -mllvm -regalloc=pbqp -mllvm -pbqp-coalescing",
    ),
    FlagSet(
        "chromium-msan",
        "c++",
        "-O1",
        "-fsanitize=memory -fsanitize-memory-track-origins=2 -fno-sanitize-memory-use-after-dtor -fPIE",
    ),
    FlagSet(
        "chromium-coverage",
        "c++",
        "-O1",
        "-fprofile-instr-generate -fcoverage-mapping -mllvm -runtime-counter-relocation",
    ),
    # Fuchsia
    FlagSet(
        "fuchsia-x64",
        "c++",
        "-Oz",
        f"{_FUCHSIA} -std=c++20 -fvisibility-inlines-hidden -fno-exceptions -fno-rtti -gsimple-template-names "
        "-fexperimental-relative-c++-abi-vtables -march=x86-64-v2 -mtune=generic -ffuchsia-api-level=24 "
        "-ftime-trace",
        target="x86_64-unknown-fuchsia",
    ),
    FlagSet(
        "fuchsia-arm64",
        "c",
        "-Os",
        f"{_FUCHSIA} -std=c11 -mcpu=cortex-a53 -Wstrict-prototypes -fsanitize=shadow-call-stack",
        target="aarch64-unknown-fuchsia",
    ),
    FlagSet(
        "zircon-x64",
        "c++",
        "-O2",
        f"{_FUCHSIA_KERNEL} -mcmodel=kernel -mno-red-zone -mno-sse -msoft-float -fzero-call-used-regs=used-gpr "
        "-Xclang -fforbid-guard-variables -Wa,--mrelax-relocations=yes",
        target="x86_64-unknown-fuchsia",
    ),
    FlagSet(
        "zircon-arm64",
        "c++",
        "-O3",
        f"{_FUCHSIA_KERNEL} -mgeneral-regs-only -fno-sanitize=shadow-call-stack -mcmodel=tiny -fno-math-errno "
        "-fno-rounding-math -funsafe-math-optimizations -fno-finite-math-only -mstrict-align",
        target="aarch64-unknown-fuchsia",
    ),
    FlagSet(
        "fuchsia-sanitizer",
        "c++",
        "-O1",
        "-fsanitize=undefined -fsanitize=integer-divide-by-zero,signed-integer-overflow "
        "-fsanitize-undefined-trap-on-error -fsanitize-address-use-after-return=never -fno-profile-instr-generate "
        "-fno-coverage-mapping -ftrap-function=__trap",
        target="x86_64-unknown-fuchsia",
    ),
    # AOSP
    FlagSet(
        "aosp-arm64",
        "c++",
        "-Os",
        f"{_AOSP} -std=gnu++20 -frtti -mbranch-protection=standard -march=armv8-a -mcpu=cortex-a55 -nostdlibinc "
        "-mllvm -enable-fs-discriminator=true -mllvm -improved-fs-discriminator=true "
        "-funique-internal-linkage-names -fdebug-info-for-profiling -fprofile-sample-accurate -mllvm "
        "-dom-tree-reachability-max-bbs-to-explore=128",
        target="aarch64-linux-android34",
    ),
    FlagSet(
        "aosp-arm",
        "c",
        "-Oz",
        f"{_AOSP} -std=gnu17 -mthumb -march=armv7-a -mfloat-abi=softfp -mcpu=cortex-a15 -mfpu=neon-vfpv4",
        target="armv7a-linux-androideabi34",
    ),
    FlagSet(
        "aosp-x86",
        "c",
        "-O2",
        f"{_AOSP} -std=gnu17 -march=goldmont -mssse3 -msse4 -msse4.1 -msse4.2 -mpopcnt -maes -fno-addrsig "
        "-mstackrealign -mfpmath=sse",
    ),
    FlagSet(
        "aosp-hwasan",
        "c++",
        "-O2",
        f"{_AOSP} -fsanitize=hwaddress -fsanitize-hwaddress-abi=platform -mllvm -hwasan-globals=0 -mllvm "
        "-hwasan-instrument-reads=0 -mllvm -hwasan-use-after-scope=1 -fno-sanitize-link-runtime",
        target="aarch64-linux-android34",
    ),
    FlagSet(
        "aosp-memtag",
        "c",
        "-O2",
        f"{_AOSP} -march=armv8-a+memtag -fsanitize=memtag-stack,memtag-heap -fsanitize-memtag-mode=sync",
        target="aarch64-linux-android34",
    ),
    FlagSet(
        "aosp-integer",
        "c++",
        "-O2",
        f"{_AOSP} -fsanitize=integer,bounds -fno-sanitize=implicit-integer-sign-change,unsigned-shift-base "
        "-fsanitize-trap=all -fsanitize-minimal-runtime -fno-sanitize-recover=integer -mllvm "
        "-asan-stack=0 -fsanitize-coverage=trace-pc-guard,indirect-calls,trace-cmp "
        "-fno-sanitize-coverage=stack-depth",
    ),
    FlagSet(
        "aosp-riscv64",
        "c",
        "-Oz",
        f"{_AOSP} -march=rv64gcv_zba_zbb_zbs -Xclang -target-feature -Xclang +unaligned-scalar-mem -Xclang "
        "-target-feature -Xclang +unaligned-vector-mem",
        target="riscv64-linux-android35",
    ),
    # The Linux kernel
    FlagSet(
        "linux-x86",
        "c",
        "-O2",
        f"{_KERNEL_X86} -fcf-protection=branch -fno-jump-tables -mretpoline-external-thunk "
        "-mindirect-branch-cs-prefix -mfunction-return=thunk-extern -fpatchable-function-entry=16,16 "
        "-mharden-sls=all -fzero-call-used-regs=used-gpr -fsanitize=kcfi -pg -mfentry "
        "-fsanitize-coverage=trace-pc,trace-cmp -mstack-protector-guard=tls -mstack-protector-guard-reg=gs "
        "-mstack-protector-guard-symbol=__ref_stack_chk_guard",
    ),
    FlagSet(
        "linux-x86-kasan",
        "c",
        "-Os",
        f"{_KERNEL_X86} -fsanitize=kernel-address -mllvm -asan-mapping-offset=0xdffffc0000000000 -mllvm "
        "-asan-instrumentation-with-call-threshold=10000 -mllvm -asan-stack=1 -mllvm -asan-globals=1 -mllvm "
        "-asan-kernel-mem-intrinsic-prefix=1 -fsanitize=array-bounds,local-bounds,shift,bool,enum "
        "-fsanitize-trap=all",
    ),
    FlagSet(
        "linux-x86-kcsan",
        "c",
        "-O2",
        f"{_KERNEL_X86} -fsanitize=thread -mllvm -tsan-compound-read-before-write=1 -mllvm "
        "-tsan-distinguish-volatile=1 -mllvm -tsan-instrument-func-entry-exit=0 -fno-builtin -mllvm "
        "-enable-fs-discriminator=true -mllvm -improved-fs-discriminator=true -fbasic-block-sections=labels",
    ),
    FlagSet(
        "linux-x86-kmsan",
        "c",
        "-O2",
        f"{_KERNEL_X86} -fsanitize=kernel-memory -mllvm -msan-disable-checks=1 -fdirect-access-external-data",
    ),
    FlagSet("linux-x86-gas", "c", "-O2", f"{_KERNEL_X86} -no-integrated-as"),
    FlagSet(
        "linux-arm64",
        "c",
        "-O2",
        f"{_KERNEL_ARM64} -Wa,-march=armv8.5-a -fpatchable-function-entry=2 -mspeculative-load-hardening",
        target=AARCH64,
    ),
    FlagSet(
        "linux-arm64-kasan",
        "c",
        "-O2",
        f"{_KERNEL_ARM64} -fsanitize=kernel-hwaddress -mllvm -hwasan-mapping-offset=0xefff800000000000 -mllvm "
        "-hwasan-instrument-stack=1 -mllvm -hwasan-use-short-granules=0 -mllvm -hwasan-inline-all-checks=0 -mllvm "
        "-hwasan-kernel-mem-intrinsic-prefix=1",
        target=AARCH64,
    ),
    FlagSet(
        "linux-arm",
        "c",
        "-Os",
        f"{_KERNEL} -mabi=aapcs-linux -mfpu=vfp -funwind-tables -meabi gnu -marm -march=armv7-a -msoft-float "
        "-mtp=cp15 -mno-movt -mlong-calls -fno-pic",
        target="arm-linux-gnueabi",
    ),
    FlagSet(
        "linux-x86-32",
        "c",
        "-Os",
        f"{_KERNEL} -m32 -msoft-float -mregparm=3 -freg-struct-return -march=i686 -ffreestanding",
    ),
    # LLVM
    FlagSet("llvm-release", "c++", "-O3", _LLVM),
    FlagSet(
        "llvm-debug-info",
        "c++",
        "-O2",
        f"{_LLVM} -g -gsplit-dwarf -ggnu-pubnames -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer -ftime-trace "
        "-ftime-trace-granularity=500 -Xclang -fno-pch-timestamp -fno-common -Woverloaded-virtual -fexceptions -gz",
    ),
    FlagSet("llvm-instrumented", "c++", "-O2", f"{_LLVM} -fprofile-generate=profiles -Wl,-z,defs"),
    FlagSet("llvm-fuzzer", "c++", "-O1", f"{_LLVM} -fsanitize=fuzzer-no-link,undefined -fno-sanitize=vptr,function"),
    # Firefox
    FlagSet("firefox-linux", "c++", "-O2", _FIREFOX),
    FlagSet(
        "firefox-android",
        "c++",
        "-Oz",
        f"{_FIREFOX} -faddrsig -march=armv7-a -mthumb -mfpu=neon -mfloat-abi=softfp -fno-short-enums",
        target="armv7a-linux-androideabi21",
    ),
    FlagSet(
        "firefox-fuzzing",
        "c++",
        "-O1",
        f"{_FIREFOX} -fsanitize=fuzzer-no-link -fsanitize-coverage=inline-8bit-counters",
    ),
    # Debian's and other distributions' defaults
    FlagSet(
        "distribution",
        "c",
        "-O2",
        "-ffile-prefix-map=/build=. -fstack-protector-strong -fstack-clash-protection -Wformat "
        "-Werror=format-security -fcf-protection -D_FORTIFY_SOURCE=3 -Wa,--compress-debug-sections=zlib "
        "-Xassembler --compress-debug-sections -g -fno-plt -fexceptions -grecord-gcc-switches "
        "-fsave-optimization-record -fstack-usage -save-stats=obj --serialize-diagnostics o.dia -MJ o.json "
        "-fproc-stat-report=o.stat -Xclang -fno-validate-pch -W",
    ),
)
