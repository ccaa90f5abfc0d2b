"""Which functions the fold before the inliner takes for equal, and what it leaves of what they differ in."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from tests.components.toolchain.programs.linked_programs import Program
from tests.components.toolchain.programs.test_linker import toolchain
from tests.components.toolchain.programs.test_program_faults import STOCK, outcome

pytestmark = pytest.mark.toolchain
__all__ = ["toolchain"]

INCLUDE = Path("/usr/lib/llvm-19/include/llvm/IR")

Outcome = Literal["apart", "folded", "generic"]
"""Two functions, one, or one that says less of its accesses than either."""


@dataclass(frozen=True)
class Pair:
    """Two functions that differ in one thing.

    Attributes:
        body: LLVM IR of both, with `{}` where they differ; `@self` is the function. The arguments are
            `ptr %p, i64 %n, float %x`.
        first, second: what stands for `{}`.
        outcome: what the fold makes of them.
        head: what stands between the arguments and the body, with `{}` where they differ.
        gone: a word that the function that stays lacks, for "generic".
        linkage: of both, or `{}`.
    """

    body: str
    first: str
    second: str
    outcome: Outcome = "apart"
    head: str = ""
    gone: str = ""
    linkage: str = "internal"

    def text(self, name: str) -> str:
        functions = []
        for which, part in (("a", self.first), ("b", self.second)):
            function = f"{name}_{which}"
            head = f"define {self.linkage} i64 @{function}(ptr %p, i64 %n, float %x) minsize optsize {self.head} {{"
            # No function of another pair is equal.
            text = "\n".join([head, f"  call void @unique_{name}()", self.body, "}"]).replace("{}", part)
            functions.append(text.replace("@self", f"@{function}"))
        calls = [f"  %{which} = call i64 @{name}_{which}(ptr %p, i64 %n, float %x)" for which in "ab"]
        head = f"define i64 @{name}_user(ptr %p, i64 %n, float %x) minsize optsize {{"
        functions.append(f"declare void @unique_{name}()")
        functions.append("\n".join([head, *calls, "  %c = add i64 %a, %b", "  ret i64 %c", "}"]))
        return "\n".join(functions)


def access(instruction: str, *before: str, use: str = "i64 %n") -> str:
    """Return a body with `instruction` and `{}` behind it; then `use` is stored."""
    lines = ["call void @other(i64 %n)", *before, f"{instruction}{{}}", f"store volatile {use}, ptr %p", "ret i64 %n"]
    return "\n".join(f"  {line}" for line in lines)


LOAD, LOAD_POINTER = access("%v = load volatile i64, ptr %p"), access("%v = load volatile ptr, ptr %p")
STORE, CALL = access("store i64 %n, ptr %p"), access("call void @other(i64 2)")
BRANCH = """\
  %c = icmp eq i64 %n, 7
  br i1 %c, label %then, label %end{}
then:
  call void @other(i64 3)
  br label %end
end:
  ret i64 %n"""
LOOP = """\
  br label %loop
loop:
  %i = phi i64 [ 0, %0 ], [ %next, %loop ]
  call void @other(i64 %i)
  %next = add i64 %i, 1
  %c = icmp eq i64 %next, %n
  br i1 %c, label %end, label %loop{}
end:
  ret i64 %n"""
COPY = access("call void @llvm.memcpy.p0.p0.i64(ptr %p, ptr @global, i64 16, i1 true)")


def metadata(kind: str, body: str, first: str, second: str = "", outcome: Outcome = "apart") -> Pair:
    nodes = [f", !{kind} {node}" if node else "" for node in (first, second)]
    return Pair(body, nodes[0], nodes[1], outcome, gone=f"!{kind}" if outcome == "generic" else "")


def attachment(kind: str, first: str, second: str = "", outcome: Outcome = "apart") -> Pair:
    """Return two functions, the first or both of which have metadata of `kind` themselves."""
    nodes = [f"!{kind} {node}" if node else "" for node in (first, second)]
    return Pair(CALL.replace("{}", ""), nodes[0], nodes[1], outcome, head="{}")


METADATA = {
    "tbaa": metadata("tbaa", STORE, "!alpha", "!beta", "generic"),
    "prof": metadata("prof", BRANCH, '!{!"branch_weights", i32 1, i32 9}', outcome="folded"),
    "fpmath": metadata("fpmath", access("%d = fdiv float %x, 3.0", use="float %d"), "!{float 2.5}"),
    "range": metadata("range", LOAD, "!{i64 0, i64 5}", "!{i64 0, i64 6}"),
    "tbaa.struct": metadata("tbaa.struct", COPY, "!{i64 0, i64 16, !alpha}", "!{i64 0, i64 16, !beta}", "generic"),
    "invariant.load": metadata("invariant.load", LOAD, "!{}"),
    "alias.scope": metadata("alias.scope", STORE, "!{!scope}", outcome="generic"),
    "noalias": metadata("noalias", STORE, "!{!scope}", outcome="generic"),
    "nontemporal": metadata("nontemporal", STORE, "!{i32 1}"),
    "llvm.mem.parallel_loop_access": metadata("llvm.mem.parallel_loop_access", STORE, "!distinct"),
    "nonnull": metadata("nonnull", LOAD_POINTER, "!{}"),
    "dereferenceable": metadata("dereferenceable", LOAD_POINTER, "!{i64 8}"),
    "dereferenceable_or_null": metadata("dereferenceable_or_null", LOAD_POINTER, "!{i64 8}"),
    "make.implicit": metadata("make.implicit", BRANCH, "!{}"),
    "unpredictable": metadata("unpredictable", BRANCH, "!{}", outcome="folded"),
    "invariant.group": metadata("invariant.group", STORE, "!{}"),
    "align": metadata("align", LOAD_POINTER, "!{i64 8}"),
    "llvm.loop": metadata("llvm.loop", LOOP, "!progress"),
    # LLVM copies it to the calls that remain.
    "type": attachment("type", '!{i64 0, !"a"}', '!{i64 0, !"b"}', "folded"),
    "section_prefix": attachment("section_prefix", '!{!"function_section_prefix", !"hot"}', outcome="folded"),
    "absolute_symbol": attachment("absolute_symbol", "!{i64 0, i64 4}"),
    "associated": attachment("associated", "!{ptr @global}"),
    "callees": metadata("callees", access("call void %f(i64 2)", "%f = load ptr, ptr %p"), "!{ptr @other}"),
    "irr_loop": metadata("irr_loop", BRANCH, '!{!"loop_header_weight", i64 5}', outcome="folded"),
    "llvm.access.group": metadata("llvm.access.group", STORE, "!distinct"),
    "callback": attachment("callback", "!{!{i64 0, i64 1, i1 false}}"),
    "llvm.preserve.access.index": metadata("llvm.preserve.access.index", CALL, "!distinct"),
    "vcall_visibility": attachment("vcall_visibility", "!{i64 0}", "!{i64 1}"),
    "noundef": metadata("noundef", LOAD, "!{}"),
    "annotation": metadata("annotation", STORE, '!{!"text"}', outcome="folded"),
    "nosanitize": metadata("nosanitize", STORE, "!{}"),
    "func_sanitize": attachment("func_sanitize", "!{i32 1}", "!{i32 2}"),
    "exclude": attachment("exclude", "!{}"),
    "memprof": metadata("memprof", CALL, '!{!{!{i64 1}, !"cold"}}', outcome="folded"),
    "callsite": metadata("callsite", CALL, "!{i64 1}", outcome="folded"),
    "kcfi_type": attachment("kcfi_type", "!{i32 1}", "!{i32 2}"),
    "pcsections": metadata("pcsections", STORE, '!{!"section"}'),
    "DIAssignID": metadata("DIAssignID", STORE, "!assigned", outcome="folded"),
    "coro.outside.frame": metadata("coro.outside.frame", access("%s = alloca i64", use="ptr %s"), "!{}"),
    "mmra": metadata("mmra", access("fence seq_cst"), '!{!"foo", !"bar"}'),
    "unknown kind": metadata("of.another.tool", STORE, "!{}"),
}
ELSEWHERE = {"dbg": "test_program_faults.py and the tests of -g compare whole programs with and without it"}


def instruction(template: str, first: str, second: str, *more: str, outcome: Outcome = "apart") -> Pair:
    """Return two functions with an instruction that differs in itself; its result %v, an i64, is used."""
    lines = ["  call void @other(i64 %n)", *(f"  {line}" for line in more), f"  {template}"]
    used = ["  call void @other(i64 %v)"] if template.startswith("%v") else []
    return Pair("\n".join([*lines, *used, "  ret i64 %n"]), first, second, outcome)


FLAGS = {
    "GEP inbounds": instruction("%q = getelementptr {} i8, ptr %p, i64 %n\n  store i64 1, ptr %q", "inbounds", ""),
    "GEP nuw": instruction("%q = getelementptr {} i8, ptr %p, i64 %n\n  store i64 1, ptr %q", "nuw", "nusw"),
    "constant GEP inbounds": instruction(
        "%q = getelementptr {} i8, ptr %p, i64 8\n  store i64 1, ptr %q", "inbounds", ""
    ),
    "GEP of types of one size": instruction(
        "%q = getelementptr {}, ptr %p, i64 0, i32 1\n  store i64 1, ptr %q",
        "{i64, i64}",
        "{double, i64}",
        outcome="folded",
    ),
    "constant expression": instruction(
        "store ptr getelementptr {}([9 x i8], ptr @global, i64 0, i64 3), ptr %p", "inbounds ", ""
    ),
    "nsw": instruction("%v = add {} i64 %n, 5", "nsw", ""),
    "nuw": instruction("%v = shl {} i64 %n, 5", "nuw", "nsw"),
    "exact": instruction("%v = lshr {} i64 %n, 5", "exact", ""),
    "disjoint": instruction("%v = or {} i64 %n, 5", "disjoint", ""),
    "nneg": instruction("%v = zext {} i32 %t to i64", "nneg", "", "%t = trunc i64 %n to i32"),
    "fast math": instruction("%f = fmul {} float %x, 3.0\n  store float %f, ptr %p", "fast", ""),
    "fast call": instruction("%f = call {} float @number(float %x)\n  store float %f, ptr %p", "nnan", ""),
    "predicate": instruction("%c = icmp {} i64 %n, 5\n  %v = zext i1 %c to i64", "slt", "ult"),
    "volatile": instruction("store {}i64 %n, ptr %p", "volatile ", ""),
    "alignment": instruction("store i64 %n, ptr %p, align {}", "8", "4"),
    "alignment of a copy": instruction(
        "call void @llvm.memcpy.p0.p0.i64(ptr align {} %p, ptr @global, i64 16, i1 true)", "8", "4"
    ),
    "ordering": instruction("store atomic i64 %n, ptr %p {}, align 8", "seq_cst", "release"),
    "scope": instruction("store atomic i64 %n, ptr %p {} seq_cst, align 8", 'syncscope("singlethread")', ""),
    "fence": instruction("fence {}", "seq_cst", "acquire"),
    "exchange": instruction(
        "%s = cmpxchg {}ptr %p, i64 %n, i64 5 seq_cst seq_cst\n  %v = extractvalue {i64, i1} %s, 0", "weak ", ""
    ),
    "alignment of an exchange": instruction(
        "%s = cmpxchg ptr %p, i64 %n, i64 5 seq_cst seq_cst, align {}\n  %v = extractvalue {i64, i1} %s, 0", "8", "16"
    ),
    "update": instruction("%v = atomicrmw {} ptr %p, i64 5 seq_cst", "add", "sub"),
    "alignment of an update": instruction("%v = atomicrmw add ptr %p, i64 5 seq_cst, align {}", "8", "16"),
    "tail call": instruction("{}call void @other(i64 6)", "notail ", ""),
    "convention": instruction("call {} void %f(i64 6)", "fastcc", "ccc", "%f = load ptr, ptr %p"),
    "attribute of a call": instruction("call void @other(i64 6) {}", "nounwind", ""),
    "attribute of an argument": instruction("call void @other(i64 {}6)", "noundef ", ""),
    "variable arguments": instruction("call void ({}) %f(i64 6)", "i64, ...", "i64", "%f = load ptr, ptr %p"),
    "bundle": instruction('call void @other(i64 6) ["{}"(i64 1)]', "tag", "mark"),
    "register": instruction("%v = call i64 @llvm.read_register.i64(metadata {})", '!{!"rsp"}', '!{!"rbp"}'),
    "rounding": instruction(
        "%f = call float @llvm.experimental.constrained.fadd.f32(float %x, float 3.0, metadata {}, metadata "
        '!"fpexcept.strict") strictfp\n  store float %f, ptr %p',
        '!"round.upward"',
        '!"round.downward"',
    ),
    "undefined value": instruction("store i64 {}, ptr %p", "undef", "poison"),
    "callee": instruction("call void @{}(i64 6)", "other", "third"),
    "variable": instruction("store i64 6, ptr @{}", "global", "second"),
    "assembly": instruction('call void asm sideeffect "{}", ""()', "nop", "pause"),
    "assembly clobbers": instruction('call void asm sideeffect "nop", "{}"()', "~{memory}", "~{rcx}"),
    "vector mask": instruction(
        "%w = shufflevector <2 x i64> %u, <2 x i64> %u, <2 x i32> <i32 {}>\n  store <2 x i64> %w, ptr %p",
        "1, i32 0",
        "1, i32 1",
        "%u = load <2 x i64>, ptr %p",
    ),
    "metadata of which of two instructions": instruction(
        "{}",
        "store volatile i64 1, ptr %p, !nontemporal !{i32 1}\n  store volatile i64 2, ptr %p",
        "store volatile i64 1, ptr %p\n  store volatile i64 2, ptr %p, !nontemporal !{i32 1}",
    ),
    "equal": instruction("call void @other(i64 6){}", "", "", outcome="folded"),
}
LANDING = """\
  invoke void @thrower(i64 %n) to label %end unwind label %pad
pad:
  %l = landingpad {ptr, i32} {}catch ptr @typeinfo
  call void @other(i64 4)
  resume {ptr, i32} %l
end:
  ret i64 %n"""
HEADS = {
    "alignment": ("align 64", ""),
    "larger alignment": ("align 64", "align 32"),
    "section": ('section ".a"', 'section ".b"'),
    "collector": ('gc "statepoint-example"', ""),
    "prefix": ("prefix i64 1", "prefix i64 2"),
    "prologue": ("prologue i8 -112", ""),
    "personality": ("personality ptr @__gxx_personality_v0", "personality ptr @__gcc_personality_v0"),
    "equal personality": ("personality ptr @__gxx_personality_v0",) * 2,
}
OWN_ADDRESS = {
    "compared": "%c = icmp eq ptr %p, @self\n  %v = zext i1 %c to i64",
    "passed": "call void @taker(ptr @self)",
    "stored": "store ptr @self, ptr %p",
    "in an expression": "store i64 ptrtoint (ptr @self to i64), ptr %p",
    "in a structure": "store {ptr, ptr} {ptr null, ptr @self}, ptr %p",
    "in a loop": "br label %loop\nloop:\n  %q = phi ptr [ @self, %0 ], [ %p, %loop ]\n  store ptr %q, ptr %p\n"
    "  %c = icmp eq ptr %q, %p\n  br i1 %c, label %end, label %loop\nend:",
    "of a block": "store ptr blockaddress(@self, %end), ptr %p\n  br label %end\nend:",
}
OF_THE_CALLER = {
    "return address": "%v = call ptr @llvm.returnaddress(i32 0)\n  store ptr %v, ptr %p",
    "place of the return address": "%v = call ptr @llvm.addressofreturnaddress.p0()\n  store ptr %v, ptr %p",
    "frame": "%v = call ptr @llvm.frameaddress.p0(i32 1)\n  store ptr %v, ptr %p",
}
KEPT_APART = {
    "naked": "naked",
    "returns twice": "returns_twice",
    "instrumented": '"instrument-function-entry"="__cyg_profile_func_enter"',
    "instrumented after inlining": '"instrument-function-entry-inlined"="__cyg_profile_func_enter"',
    "profiled": '"fentry-call"="true"',
    "patched": '"patchable-function-entry"="2"',
    "traced": '"function-instrument"="xray-always"',
}
DECLARATIONS = """\
target triple = "x86_64-unknown-linux-gnu"
@global = internal global [9 x i8] c"123456789"
@second = internal global i64 2
@typeinfo = external constant ptr
declare void @other(i64)
declare void @third(i64)
declare void @thrower(i64)
declare void @taker(ptr)
declare float @number(float)
declare i32 @__gxx_personality_v0(...)
declare i32 @__gcc_personality_v0(...)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i64 @llvm.read_register.i64(metadata)
declare ptr @llvm.returnaddress(i32)
declare ptr @llvm.addressofreturnaddress.p0()
declare ptr @llvm.frameaddress.p0(i32)
declare float @llvm.experimental.constrained.fadd.f32(float, float, metadata, metadata)
"""
NODES = {
    "alpha": "!{!alphatype, !longtype, i64 0}",
    "beta": "!{!betatype, !longtype, i64 0}",
    "alphatype": '!{!"alpha", !longtype, i64 0}',
    "betatype": '!{!"beta", !longtype, i64 0}',
    "longtype": '!{!"long", !chartype, i64 0}',
    "chartype": '!{!"omnipotent char", !root, i64 0}',
    "root": '!{!"Simple C/C++ TBAA"}',
    "scope": "distinct !{!scope, !domain}",
    "domain": "distinct !{!domain}",
    "distinct": "distinct !{}",
    "assigned": "distinct !DIAssignID()",
    "progress": "distinct !{!progress, !mustprogress}",
    "mustprogress": '!{!"llvm.loop.mustprogress"}',
}


def module(pairs: dict[str, Pair]) -> str:
    """Return a module of all pairs; nodes are named in `NODES`, LLVM numbers them."""
    text = "\n".join([DECLARATIONS, *(pair.text(name) for name, pair in pairs.items())])
    numbers = {name: str(i) for i, name in enumerate(NODES)}
    text += "".join(f"\n!{name} = {node}" for name, node in NODES.items())
    return re.sub(rf"!({'|'.join(map(re.escape, NODES))})\b(?! ?\{{|\")", lambda m: f"!{numbers[m[1]]}", text)


def folded(clang: Path, directory: Path, pairs: dict[str, Pair]) -> dict[str, str]:
    """Fold a module of `pairs`; return each function's text."""
    (directory / "pairs.ll").write_text(module(pairs))
    options = ["-mlgo-fold=1", "-print-changed=quiet"]
    command: list[str | Path] = [clang, "-Oz", "-w", "-x", "ir", "pairs.ll", "-S", "-emit-llvm", "-o", "/dev/null"]
    done = subprocess.run(
        [*command, *(part for option in options for part in ("-mllvm", option))],
        cwd=directory,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (dump,) = re.findall(r"FoldPass on \[module\] \*\*\*\n(.*?)\n\*\*\*", done.stderr, re.DOTALL)
    nodes = dict(re.findall(r"^(!\d+) = (.*)$", dump, re.MULTILINE))
    functions = re.findall(r"^define [^@]*@(\S+?)\((.*?)^}$", dump, re.DOTALL | re.MULTILINE)
    return {name: re.sub(r"!\d+", lambda m: nodes.get(m[0], m[0]), text) for name, text in functions}


def check(clang: Path, directory: Path, rows: dict[str, Pair]) -> None:
    pairs = {f"pair{i}": pair for i, pair in enumerate(rows.values())}
    functions = folded(clang, directory, pairs)
    outcomes = {}
    for (name, pair), row in zip(pairs.items(), rows, strict=True):
        both = f"{name}_a" in functions and f"{name}_b" in functions
        calls_both = all(f"@{name}_{which}(" in functions[f"{name}_user"] for which in "ab")
        assert both == calls_both, row
        outcomes[row] = "apart" if both else pair.outcome if pair.outcome == "generic" else "folded"
        if pair.outcome == "generic":
            stays = functions.get(f"{name}_a") or functions[f"{name}_b"]
            assert not re.search(r"alpha|beta", stays) and (pair.gone == "!tbaa" or pair.gone not in stays), row
    expected = {row: pair.outcome for row, pair in rows.items()}
    assert {row: (outcomes[row], right) for row, right in expected.items() if outcomes[row] != right} == {}


def fixed_metadata_kinds() -> set[str]:
    text = (INCLUDE / "FixedMetadataKinds.def").read_text()
    return set(re.findall(r'LLVM_FIXED_MD_KIND\(\w+,\s*"([^"]+)",\s*\d+\)', text))


def test_every_kind_of_metadata_is_compared_intersected_or_a_hint(toolchain: Path, tmp_path: Path) -> None:
    assert fixed_metadata_kinds() == ({*METADATA} - {"unknown kind"}) | {*ELSEWHERE}
    check(toolchain / "bin" / "clang", tmp_path, METADATA)


def test_flags_and_operands_of_instructions_are_compared(toolchain: Path, tmp_path: Path) -> None:
    landing = Pair(LANDING, "cleanup ", "", head="personality ptr @__gxx_personality_v0")
    check(toolchain / "bin" / "clang", tmp_path, {**FLAGS, "cleanup of a landing pad": landing})


def test_heads_of_functions_are_compared(toolchain: Path, tmp_path: Path) -> None:
    body = CALL.replace("{}", "")
    rows = {
        name: Pair(body, *heads, "apart" if heads[0] != heads[1] else "folded", head="{}")
        for name, heads in HEADS.items()
    }
    check(toolchain / "bin" / "clang", tmp_path, rows)


def test_linkage_of_functions_is_compared(toolchain: Path, tmp_path: Path) -> None:
    """A linker picks one copy of an inline function, which other options may have compiled."""
    body = CALL.replace("{}", "")
    linkages: dict[str, tuple[str, str, Outcome]] = {
        "inline": ("linkonce_odr", "linkonce_odr", "apart"),
        "inline and static": ("linkonce_odr", "internal", "apart"),
        "weak": ("weak", "weak", "apart"),
        "weak and static": ("weak", "internal", "apart"),
    }
    rows = {name: Pair(body, *row, linkage="{}") for name, row in linkages.items()}
    check(toolchain / "bin" / "clang", tmp_path, rows)


def function_attributes() -> list[str]:
    """Return LLVM's attributes without arguments."""
    text = (INCLUDE / "Attributes.inc").read_text()
    return re.findall(r"^ATTRIBUTE_ENUM\(\w+,\s*(\w+)\)", text, re.MULTILINE)


def test_attributes_of_functions_are_compared(toolchain: Path, tmp_path: Path) -> None:
    """Those that a function may have and that say nothing about where the caller of the two goes on."""
    unusual = {"noreturn", "optnone", "minsize", "optsize", "naked", "presplitcoroutine", "optdebug"}
    body = CALL.replace("{}", "")
    rows = {}
    for name in function_attributes():
        probe = f"declare void @f() {name}\n"
        accepted = subprocess.run(
            [toolchain / "bin" / "clang", "-w", "-x", "ir", "-", "-S", "-emit-llvm", "-o", "/dev/null"],
            input=probe,
            capture_output=True,
            text=True,
        )
        if accepted.returncode == 0 and name not in unusual:
            rows[name] = Pair(body, name, "", head="{}")
    assert len(rows) > 30
    rows |= {
        text: Pair(body, text, "", head="{}")
        for text in ("memory(read)", "uwtable", "alignstack(32)", '"target-features"="+avx2"', '"any"="value"')
    }
    check(toolchain / "bin" / "clang", tmp_path, rows)


def test_functions_that_use_their_address_or_are_instrumented_stay_apart(toolchain: Path, tmp_path: Path) -> None:
    rows = {
        name: Pair(f"  call void @other(i64 %n)\n  {text}\n  ret i64 %n", "", "")
        for name, text in {**OWN_ADDRESS, **OF_THE_CALLER}.items()
    }
    kept = {name: Pair(CALL, "", "", head=head) for name, head in KEPT_APART.items()}
    call = "  %m = sub i64 %n, 1\n  %v = call i64 @self(ptr %p, i64 %m, float %x)"
    recursion = Pair(f"  call void @other(i64 %n)\n{call}\n  ret i64 %v", "", "", "folded")
    check(toolchain / "bin" / "clang", tmp_path, {**rows, **kept, "recursion": recursion})


SETTERS = """\
#include <stdio.h>
struct alpha { long value; };
struct beta { long value; };
struct real { double value; };
static void set_alpha(struct alpha *a, long v) { a->value = v; }
static void set_beta(struct beta *b, long v) { b->value = v; }
static long get_alpha(struct alpha *a) { return a->value; }
static long get_beta(struct beta *b) { return b->value; }
static void copy_beta(struct beta *to, const struct beta *from) { *to = *from; }
static void copy_real(struct real *to, const struct real *from) { *to = *from; }
#define AROUND(name)                                                                         \\
  __attribute__((noinline)) long name##_twice(struct name *p, struct name *q) {              \\
    p->value = 1;                                                                            \\
    set_##name(q, 2);                                                                        \\
    return p->value;                                                                         \\
  }                                                                                          \\
  __attribute__((noinline)) long name##_got(struct name *p, struct name *q, struct other *o) { \\
    p->value = 3;                                                                            \\
    o->value = 4;                                                                            \\
    return get_##name(q);                                                                    \\
  }
struct other { long value; };
AROUND(alpha)
AROUND(beta)
__attribute__((noinline)) double real_copied(struct real *p, struct real *q, struct real *r) {
  p->value = 1.5;
  copy_real(q, r);
  return p->value;
}
__attribute__((noinline)) long beta_copied(struct beta *p, struct beta *q, struct beta *r) {
  p->value = 1;
  copy_beta(q, r);
  return p->value;
}
int main(int n, char **v) {
  struct alpha a[2] = {{0}};
  struct beta b[2] = {{0}}, c = {6};
  struct real r[2] = {{0}}, s = {2.5};
  struct other o;
  printf("%ld %ld ", alpha_twice(&a[n - 1], a), beta_twice(&b[n - 1], b));
  printf("%ld %ld ", alpha_got(&a[n - 1], a, &o), beta_got(&b[n - 1], b, &o));
  printf("%g %ld", real_copied(&r[n - 1], r, &s), beta_copied(&b[n - 1], b, &c));
  return 0;
}
"""
TEMPLATES = """\
#include <algorithm>
#include <cstdio>
#include <vector>
enum Color { red, green, blue };
template <class T> void set(T *p, T v) { *p = v; }
template <class T> void pass(T *p, T v) { set(p, v); }
template <class T> __attribute__((noinline)) int after(T *p, T *q) {
  *p = T(1);
  pass(q, T(2));
  return int(*p);
}
template <class T> int fill(int n) {
  std::vector<T> v(4);
  v[n - 1] = 1;
  std::fill(v.begin(), v.begin() + n, 2);
  return int(v[n - 1]);
}
int main(int n, char **) {
  int i[2]{};
  Color c[2]{};
  long l[2]{};
  long long ll[2]{};
  std::printf("%d %d %d %d ", after(&i[n - 1], i), after(&c[n - 1], c), after(&l[n - 1], l), after(&ll[n - 1], ll));
  std::printf("%d %d", fill<long>(n), fill<long long>(n));
}
"""
CALLBACKS = """\
#include <stdio.h>
typedef void (*callback)(int);
static callback queue[8];
static int queued, ran;
__attribute__((noinline)) static void schedule(callback f) { queue[queued++] = f; }
__attribute__((noinline)) static int cancel(callback f) {
  int n = 0;
  for (int i = 0; i < queued; ++i)
    if (queue[i] == f) {
      queue[i] = 0;
      ++n;
    }
  return n;
}
static void tick_a(int n) { ran += n; if (n > 0) schedule(tick_a); }
static void tick_b(int n) { ran += n; if (n > 0) schedule(tick_b); }
static int is_a(void *next) { return next == (void *)is_a ? 10 : 1; }
static int is_b(void *next) { return next == (void *)is_b ? 10 : 1; }
int main(int n, char **v) {
  callback volatile a = tick_a, b = tick_b;
  int (*volatile fa)(void *) = is_a, (*volatile fb)(void *) = is_b;
  a(n);
  b(n);
  printf("%d %d %d %d %d", cancel(b), cancel(a), fa((void *)fa), fb((void *)fb), ran);
  return 0;
}
"""
SIGNALS = """\
#include <algorithm>
#include <cstdio>
#include <vector>
using Slot = void (*)(int);
static std::vector<Slot> slots;
static long remove(Slot f) {
  auto n = slots.size();
  slots.erase(std::remove(slots.begin(), slots.end(), f), slots.end());
  return n - slots.size();
}
template <class T> struct Handler {
  static void once(int x) {
    if (x > 0) slots.push_back(&once);
  }
};
struct A;
struct B;
int main(int n, char **) {
  Slot volatile a = &Handler<A>::once, b = &Handler<B>::once;
  a(n);
  b(n);
  long of_b = remove(b);
  std::printf("%ld %ld", of_b, remove(a));
}
"""
INSTRUMENTED = """\
#include <stdio.h>
static void *entered[16];
static int n;
#define PLAIN __attribute__((no_instrument_function))
PLAIN void __cyg_profile_func_enter(void *f, void *c) { if (n < 16) entered[n++] = f; }
PLAIN void __cyg_profile_func_exit(void *f, void *c) {}
__attribute__((noinline)) int open_door(int x) { return x * 3 + 1; }
__attribute__((noinline)) int shut_door(int x) { return x * 3 + 1; }
PLAIN int main(int argc, char **argv) {
  int (*volatile o)(int) = open_door, (*volatile s)(int) = shut_door;
  o(argc);
  s(argc);
  printf("%d %d %d", n, entered[0] == (void *)o, entered[1] == (void *)s);
  return 0;
}
"""
# With -fwrapv an address that wraps is smaller.
WRAPPED = """\
static int NAME(const char *p, unsigned long n) { return p + n < p; }
int NAME_wraps(const char *p, unsigned long n) { return NAME(p, n) + 2 * NAME(p, n / 2); }
"""
WRAPPING_MAIN = """\
#include <stdio.h>
int plain_wraps(const char *, unsigned long), wrapped_wraps(const char *, unsigned long);
int main(int n, char **v) {
  printf("%d %d", plain_wraps(v[0], n), wrapped_wraps((char *)-16L, 40L + n));
  return 0;
}
"""
# C lets loops without a condition be endless, and no other ones.
LOOPS = """\
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
static sigjmp_buf end;
static void stop(int number) { siglongjmp(end, 1); }
__attribute__((noinline)) static unsigned first(unsigned x, unsigned y) {
  do { x += 2; } while (x & 1);
  while (1) { y += 2; if (!(y & 1)) break; }
  return y;
}
__attribute__((noinline)) static unsigned second(unsigned x, unsigned y) {
  while (1) { x += 2; if (!(x & 1)) break; }
  do { y += 2; } while (y & 1);
  return y;
}
int main(int n, char **v) {
  printf("%u ", first(2 * n, 4));
  signal(SIGALRM, stop);
  ualarm(50000, 0);
  if (sigsetjmp(end, 1))
    printf("endless");
  else
    printf("%u", second(n, 4));
  return 0;
}
"""
# The copies of `alone` of files without `twice` return what they stored first.
COPIES = """\
#include <cstdio>
struct A { int x; };
struct B { int x; };
extern double sink;
__attribute__((noinline)) inline int alone(A *a, B *b) { a->x = 1; b->x = 2; sink += 1; return a->x; }
__attribute__((noinline)) inline int twice(A *a, A *b) { a->x = 1; b->x = 2; sink += 1; return a->x; }
int library(B *);
extern int (*where)(A *, B *);
"""
COPIES_MAIN = """\
#include "copies.h"
int main() {
  A a;
  B b;
  int own = alone(&a, &b), of_library = library(&b);
  std::printf("%d %d %d", own, of_library, where == alone);
}
"""
COPIES_LIBRARY = """\
#include "copies.h"
double sink;
static A shared;
int (*where)(A *, B *);
int library(B *b) {
  A local;
  where = alone;
  return 10 * twice(&shared, &shared) + alone(&local, b);
}
"""
MAKE_OBJECT = "$CC++ -Oz -flto -fuse-ld=lld -w -r -nostdlib library.cpp -o library.o"
MAKE_LIBRARY = "$CC++ -Oz -flto -fuse-ld=lld -w -fPIC -shared library.cpp -o liblibrary.so"
OF_LIBRARY = ("-L.", "-llibrary", "-Wl,-rpath,$ORIGIN")
# Linked without -fPIC, the library's functions are replaced by the program's.
REPLACED = """\
static long sum;
__attribute__((noinline)) int tripled(int x) { sum += x; if (x > 50) sum *= 2; return x * 3; }
__attribute__((noinline)) static int thrice(int x) { sum += x; if (x > 50) sum *= 2; return x * 3; }
int library(int x) { return thrice(x) * 100 + thrice(x + 1); }
"""
REPLACING = """\
#include <stdio.h>
int library(int);
int tripled(int x) { return x + 1000; }
int main(int n, char **v) {
  printf("%d %d", library(n), tripled(n));
  return 0;
}
"""
SPANS = """\
#include <cstdio>
extern long made, gone;
template <class T> struct Span {
  T *first, *last;
  long size;
  Span(T *p, long n);
  ~Span();
};
template <class T> Span<T>::Span(T *p, long n) : first(p), last(p + n), size(n) { made += n > 5 ? n + 100 : n; }
template <class T> Span<T>::~Span() { gone += size > 3 ? size + 100 : size; }
"""
SPANS_MAIN = """\
#include "spans.h"
extern template struct Span<unsigned>;
extern template struct Span<float>;
long made, gone;
void others();
int main() {
  { unsigned u[9]; Span<unsigned> s(u, 7); float f[9]; Span<float> t(f, 2); others(); }
  std::printf("%ld %ld", made, gone);
}
"""
SPANS_OTHERS = """\
#include "spans.h"
template struct Span<int>;
extern template struct Span<unsigned>;
void others() { int i[9]; Span<int> s(i, 4); unsigned u[9]; Span<unsigned> t(u, 8); }
"""
SPANS_OF_ALL = '#include "spans.h"\n' + "".join(f"template struct Span<{t}>;\n" for t in ("int", "unsigned", "float"))
SAME = {
    "types of accesses": Program({"main.c": SETTERS}, "2 2 3 3 2.5 6"),
    "types of templates": Program({"main.cc": TEMPLATES}, "2 2 2 2 2 2"),
    "callbacks that schedule themselves": Program({"main.c": CALLBACKS}, "1 1 10 10 2"),
    "handlers that remove themselves": Program({"main.cc": SIGNALS}, "1 1"),
    "instrumented functions": Program({"main.c": INSTRUMENTED}, "2 1 1", ("-finstrument-functions",)),
    "a file whose addresses wrap": Program(
        {
            "main.c": WRAPPING_MAIN,
            "plain.c": WRAPPED.replace("NAME", "plain"),
            "wrapping.c": WRAPPED.replace("NAME", "wrapped"),
        },
        "0 3",
    ),
    "loops that may be endless": Program({"main.c": LOOPS}, "6 endless"),
    "copies of inline functions": Program(
        {"main.cc": COPIES_MAIN, "library.cc": COPIES_LIBRARY, "copies.h": COPIES}, "1 21 1"
    ),
    "explicit instances": Program(
        {"others.cc": SPANS_OTHERS, "all.cc": SPANS_OF_ALL, "main.cc": SPANS_MAIN, "spans.h": SPANS}, "221 321"
    ),
}
LATER = {
    "an object of a link": Program(
        {"native.cc": COPIES_MAIN, "library.cpp": COPIES_LIBRARY, "copies.h": COPIES},
        "1 21 1",
        ("library.o", "-Wl,--icf=none"),
        MAKE_OBJECT,
    ),
    "a library": Program(
        {"main.cc": COPIES_MAIN, "library.cpp": COPIES_LIBRARY, "copies.h": COPIES}, "1 21 1", OF_LIBRARY, MAKE_LIBRARY
    ),
    "a library of files for programs": Program(
        {"main.c": REPLACING, "library.cpp": REPLACED},
        "306 1001",
        OF_LIBRARY,
        MAKE_LIBRARY.replace("++", "").replace("-fPIC", "-x c"),
    ),
}


@pytest.mark.parametrize("name", LATER)
def test_functions_that_are_replaced_later_are_not_called_for_others(
    toolchain: Path, tmp_path: Path, name: str
) -> None:
    for directory, root in (("stock", STOCK), ("ours", toolchain / "bin")):
        assert outcome(LATER[name], root, tmp_path / directory) == ("", LATER[name].prints)


@pytest.mark.parametrize("name", SAME)
def test_programs_of_nearly_equal_functions_do_what_they_do_unfolded(
    toolchain: Path, tmp_path: Path, name: str
) -> None:
    program = SAME[name]
    for directory, root, flags in (
        ("stock", STOCK, ["-O0", "-fno-lto"]),
        ("full", toolchain / "bin", []),
        ("thin", toolchain / "bin", ["-flto=thin"]),
        ("objects", toolchain / "bin", ["-fno-lto", "-mllvm", "-mlgo-fold=1"]),
    ):
        assert outcome(program, root, tmp_path / directory, *flags) == ("", program.prints)
