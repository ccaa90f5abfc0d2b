"""LLVM's own options (-mllvm) that a replay drops, keeps or refuses; replay_options.py applies these tables.

An option without a value, or with a number or a truth value, is kept unless it is refused here. A text is kept only for
the options listed with texts: of any other option it may be the name of a file or program, and so may a number. A test
compares the tables with what clang -mllvm --help-hidden lists.
"""

from __future__ import annotations

import re

LLVM_OPTION = re.compile(r"--?([A-Za-z0-9][\w.-]*)(?:=(.*))?", re.DOTALL)
LLVM_VALUE = re.compile(r"[+-]?(0[xX][0-9a-fA-F]+|\d+(\.\d+)?)|true|false|TRUE|FALSE")
LLVM_KEYWORD = re.compile(r"[\w.+-]+")
LLVM_TEXT = re.compile(r"[^/\\\0]*")

LLVM_DROPPED = frozenset(
    {
        "crash-diagnostics-dir",
        "enable-ml-inliner",
        "lto-embed-bitcode",
        "regalloc-enable-advisor",
        "regalloc-enable-priority-advisor",
    }
)
"""Where diagnostics go; what embedded the bitcode, of which the object needs no copy; and the advisors, which the
replay selects itself (LLVM accepts such an option once only)."""

LLVM_REFUSED = frozenset(
    """
    amdgpu-module-splitting-print-module-dotcfg amdgpu-module-splitting-print-partition-summaries
    attributor-dump-dep-graph chr-function-list chr-module-list dataflow-log dfsan-abilist exec-on-ir-change
    executor fs-viewbfi-after fs-viewbfi-before help help-hidden help-list help-list-hidden
    inliner-interactive-channel-base load load-pass-plugin lowertypetests-read-summary lowertypetests-write-summary
    lto-aix-system-assembler memprof-import-summary ml-inliner-model-under-training o orderfile-write-mapping
    polly-dump-after polly-dump-before polly-export polly-import-jscop-postfix polly-isl-arg print-changed
    regalloc-evict-interactive-channel-base regalloc-model regalloc-priority-interactive-channel-base
    regalloc-priority-model regalloc-priority-training-log regalloc-training-log start-after start-before stop-after
    stop-before thinlto-workload-def training-log use-ctx-profile version wholeprogramdevirt-read-summary
    wholeprogramdevirt-write-summary
    """.split()
)
"""Options that start programs, read, write or open files, write something other than an object, or print and exit."""

LLVM_REFUSED_WORDS = frozenset(
    """
    dir directory dot file filename files mlgo output path paths plugin plugins replay view
    """.split()
)
"""Options whose names contain one of these words take a file, or are options of the training clang."""

LLVM_HARMLESS = frozenset({"enable-order-file-instrumentation"})
"""Options kept in spite of such a word."""

LLVM_KEYWORD_OPTIONS = frozenset(
    """
    aarch64-authenticated-lr-check-method aarch64-neon-syntax aarch64-ptrauth-auth-checks accel-tables
    amdgpu-atomic-optimizer-strategy amdgpu-lower-module-lds-strategy arm-implicit-it arm-memtransfer-tploop
    asan-constructor-kind asan-destructor-kind asan-use-after-return attributor-enable avoid-spirv-capabilities
    cost-kind debugify-level disable-hoisting-to-hotter-blocks dwarf-extended-loc dwarf-inlined-strings
    dwarf-linkage-names dwarf-op-convert dwarf-sections-as-references emit-dwarf-unwind enable-machine-outliner
    expand-variadics-override force-summary-edges-cold force-tail-folding-style global-isel-abort
    hwasan-mapping-offset-dynamic hwasan-record-stack-history inline-priority-mode inliner-function-import-stats
    intrinsic-cost-strategy ir2vec-kind loongarch-materialize-float-imm loop-fusion-dependence-analysis
    loop-idiom-vectorize-style loop-interchange-profitabilities lowertypetests-drop-type-tests
    lsr-preferred-addressing-mode matrix-default-layout mhvx mhwmult minimize-addr-in-v5 mips-compact-branches
    mir2vec-kind misched misched-postra-direction misched-prera-direction ml-inliner-skip-policy nvptx-prec-divf32
    pgo-analysis-map pgo-cold-func-opt polly-code-generation polly-dependences-analysis-level
    polly-dependences-analysis-type polly-omp-backend polly-optimizer polly-overflow-tracking polly-position
    polly-scheduling polly-stmt-granularity polly-vectorizer ppc-gpr-icmps pre-RA-sched
    prefer-predicate-over-epilogue print-region-style regalloc replexitval riscv-force-machine-combiner-strategy
    riscv-rvv-regalloc scalable-vectorization sgpr-regalloc split-spill-mode stack-tagging-record-stack-history
    stack-tagging-unchecked-ld-st tail-predication use-unknown-locations vector-library vgpr-regalloc
    wholeprogramdevirt-check window-sched wwm-regalloc x86-asm-syntax
    """.split()
)
"""Options that select one of several keywords, according to LLVM's help."""

LLVM_TEXT_OPTIONS = frozenset(
    """
    alloc-token-prefix amdgpu-sched-strategy amdgpu-use-native asan-debug-func asan-memory-access-callback-prefix
    bbsections-cold-text-prefix break-anti-dependencies cfg-func-name check-functions-filter cphoistfn
    ctx-prof-skip-callsite-instr ctx-profile-printer-level debug-counter debug-pass default-gcov-version
    dfsan-combine-taint-lookup-table emscripten-cxx-exceptions-allowed expandvp-override-evl-transform
    expandvp-override-mask-transform filter filter-passes filter-print-funcs force-attribute force-remove-attribute
    hotcoldsplit-cold-section-name hwasan-memory-access-callback-prefix icp-ignored-base-types
    import-critical-multiplier import-hot-evolution-factor import-hot-multiplier import-instr-evolution-factor
    internalize-public-api-list lowertypetests-summary-action lto-pass-remarks-filter lto-pass-remarks-format
    lto-pass-remarks-hotness-threshold mcfg-func-name memprof-debug-func memprof-memory-access-callback-prefix
    memprof-runtime-default-options mips32-function-mask ml-inliner-model-selector ms-secure-hotpatch-functions-list
    nsan-shadow-type-mapping nvptx-lower-global-ctor-dtor-id nvvm-reflect-add opt-bisect opt-disable pass-remarks
    pass-remarks-analysis pass-remarks-missed pgo-trace-func-hash polly-context polly-debug-func polly-ignore-func
    polly-only-func polly-only-region polly-opt-maximize-bands polly-opt-optimize-only polly-opt-outer-coincidence
    polly-opt-simplify-deps print-after print-before print-bfi-func-name print-bpi-func-name profile-context-root
    profile-correlate rename-exclude-alias-prefixes rename-exclude-function-prefixes rename-exclude-global-prefixes
    rename-exclude-struct-prefixes reserve-regs-for-regalloc rng-seed sbvec-collect-seeds sbvec-passes spirv-ext
    spv-allow-unknown-intrinsics sve-tail-folding target-abi verify-pseudo-probe-funcs wholeprogramdevirt-skip
    wholeprogramdevirt-summary-action x86-align-branch
    """.split()
)
"""Options whose texts are names of functions, passes, sections and registers, and numbers with units."""

LLVM_RULE_OPTION = re.compile(r"\w+combiner-(disable|only-enable)-rule|\w+lowering-(disable|only-enable)-rule")
"""More such options, of the combiners of GlobalISel; their texts are names of rules."""
