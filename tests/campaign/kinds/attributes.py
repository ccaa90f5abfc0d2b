"""Functions that differ in one attribute of a function, a parameter, a call or a return."""

from __future__ import annotations

import random

from tests.campaign.program import Family, Unit, fill


def promised(rng: random.Random) -> Family:
    """A function with an attribute that promises something, and the same function called without keeping it."""
    attribute, text, kept, free = rng.choice(
        [
            (
                "__attribute__((returns_nonnull))",
                "%A% @static int *$f(int *p) { @dress(1) return p; }\n"
                "@static int $g(int *p) { return $f(p) ? 3 : 4; }\n",
                "static int i; SAY(@via($g)(&i));",
                "static int i; SAY(@via($g)(&i)); SAY(@via($g)((int *)0));",
            ),
            (
                "__attribute__((nonnull))",
                "%A% @static int $f(int *p) { @dress(1) return p ? 3 : 4; }\n",
                "static int i; SAY(@via($f)(&i));",
                "static int i; SAY(@via($f)(&i)); SAY(@via($f)((int *)0));",
            ),
            (
                "__attribute__((assume_aligned(64)))",
                "%A% @static char *$f(char *p) { @dress(1) return p; }\n"
                "@static int $g(char *p) { return (int)((ulong)$f(p) & 63); }\n",
                "static char c[128] __attribute__((aligned(64))); SAY(@via($g)(c));",
                "static char c[128] __attribute__((aligned(64))); SAY(@via($g)(c + 5));",
            ),
            (
                "__attribute__((malloc))",
                "static long $pool[2];\n%A% @static long *$f(int i) { @dress(1) return &$pool[i]; }\n"
                "@static i64 $g(long *q, int i) { long *p = $f(i); *q = 1; *p = 2; return *q; }\n",
                "static long other; SAY(@via($g)(&other, one));",
                "SAY(@via($g)($pool, zero)); SAY(@via($g)($pool, one));",
            ),
            (
                "__attribute__((pure))",
                "static int $n;\n%A% @static int $f(int x) { return $n + x; }\n"
                "@static int $g(int x) { int a = $f(x); $n++; return a * 10 + $f(x); }\n",
                "SAY(@via($g)(one));",
                "SAY(@via($g)(one));",
            ),
            (
                "__attribute__((const))",
                "%A% @static int $f(int x) { return x * 7; }\n"
                "@static int $g(int x) { int a = $f(x); trace++; return a * 10 + $f(x); }\n",
                "SAY(@via($g)(one));",
                "SAY(@via($g)(one));",
            ),
            (
                "__attribute__((noreturn))",
                "#include <setjmp.h>\nstatic jmp_buf $j;\n"
                "NOINLINE static void $leave(int x) { if (x) longjmp($j, x); }\n"
                "%A% @static void $f(int x) { $leave(x); %END% }\n"
                "@static int $g(int x) { $f(x); return 5; }\n",
                "if (!setjmp($j)) SAY(@via($g)(one)); else SAY(99);",
                "if (!setjmp($j)) SAY(@via($g)(zero)); else SAY(99);",
            ),
            (
                "__attribute__((alloc_size(1)))",
                "static char $pool[64];\n%A% @static char *$f(ulong n) { @dress(1) return $pool + (n & 1); }\n"
                "@static i64 $g(ulong n) { char *p = $f(n); p[5] = 3; return p[5]; }\n",
                "SAY(@via($g)(16));",
                "SAY(@via($g)((ulong)one)); SAY(@via($g)(2));",
            ),
        ]
    )
    end = "__builtin_unreachable();" if "noreturn" in attribute else ""
    units = [
        Unit(fill(text, A=attribute, END=end) + f"void $use(void) {{ {kept} }}"),
        Unit(fill(text, A="", END="") + f"void $use(void) {{ {free} }}"),
    ]
    if rng.random() < 0.5:
        units.append(Unit(fill(text, A="", END="") + f"void $use(void) {{ {free} }}"))
    rng.shuffle(units)
    return Family(attribute[15:-2].strip("()").split("(")[0], units, attributes=False)


def callee_attributes(rng: random.Random) -> Family:
    """Equal callers of a pure, const or noreturn function and of one that is not."""
    header = (
        '#ifdef __cplusplus\nextern "C" {\n#endif\nextern int $$n;\n'
        "__attribute__((pure)) int $$pure(int x);\nint $$counts(int x);\n"
        "__attribute__((const)) int $$const(int x);\n"
        "#ifdef __cplusplus\n}\n#endif\n"
    )
    owner = Unit(
        '#ifdef __cplusplus\nextern "C" {\n#endif\nint $$n;\nNOINLINE int $$pure(int x) { return $$n + x; }\n'
        "NOINLINE int $$const(int x) { return 3 * x; }\nNOINLINE int $$counts(int x) { return ++$$n * x; }\n"
        "#ifdef __cplusplus\n}\n#endif\nvoid $use(void) { SAY($$n); }"
    )
    body = rng.choice(
        [
            "int a = $$%F%(x); int b = $$%F%(x); return a * 10 + b;",
            "int s = 0; for (int i = 0; i < 3; i++) s = s * 2 + $$%F%(x); return s;",
            "$$%F%(x); return $$%F%(x + 1);",
        ]
    )
    units = [
        Unit(
            fill(f"@static int $f(int x) {{ {body} }}\nvoid $use(void) {{ SAY(@via($f)(one)); SAY($f(2)); }}", F=callee)
        )
        for callee in rng.sample(["pure", "counts", "const"], 3)
    ]
    return Family("callee attribute", [owner, *units], header=header)


def harmless(rng: random.Random) -> Family:
    """Functions that differ in attributes that change their code and not what they compute."""
    attributes = rng.sample(
        [
            "",
            "cold",
            "hot",
            "minsize",
            "optnone, noinline",
            "flatten",
            "noinline",
            'section("text_a"), noinline',
            'section("text_b"), noinline',
            "aligned(64), noinline",
            "no_instrument_function",
            "disable_tail_calls",
            "no_stack_protector",
            "no_builtin",
            "nomerge",
            "weak",
            "used",
            "retain, used",
            "no_caller_saved_registers_",
            "nothrow",
            'visibility("protected")',
            'zero_call_used_regs("used-gpr")',
            "patchable_function_entry(2)",
            "returns_twice_",
            "uwtable",
            "no_reorder_",
            "nocf_check",
        ],
        rng.choice([3, 4, 5]),
    )
    attributes = [a for a in attributes if not a.endswith("_")] or [""]
    body = rng.choice(
        [
            "@dress(x) return x * 5 + step(x, 1, 2, 3);",
            "int s = 0; for (int i = 0; i < x + 3; i++) s += (int)step(i, s & 7, 2, 3) & 15; @dress(s) return s;",
            "char b[16]; for (int i = 0; i < 16; i++) b[i] = (char)(i * x); @dress(b[3]) return b[x & 15] + b[5];",
            "return x > 3 ? (int)step(1, 2, 3, x) : x > 1 ? (int)step(4, 5, 6, x) : (int)step(7, 8, 9, x);",
        ]
    )
    units = []
    for attribute in attributes:
        static = "" if "weak" in attribute or "visibility" in attribute else "static "
        check = ""
        if attribute.startswith("aligned"):
            check = " SAY((i64)((ulong)(void *)VIA($f) & 63));"
        if attribute.startswith("section"):
            name = attribute.split('"')[1]
            check = f" SAY((ulong)VIA($f) >= (ulong)&__start_{name} && (ulong)VIA($f) < (ulong)&__stop_{name});"
        declare = ""
        if check and "section" in attribute:
            declare = (
                '#ifdef __cplusplus\nextern "C" {\n#endif\n'
                f"extern char __start_{name}, __stop_{name};\n#ifdef __cplusplus\n}}\n#endif\n"
            )
        units.append(
            Unit(
                f"{declare}__attribute__(({attribute})) {static}int $f(int x) {{ {body} }}\n"
                f"void $use(void) {{ SAY(@via($f)(one)); SAY($f(2));{check} }}"
            )
        )
    return Family("attribute", units, identity=True, attributes=False, external=True)


def targets(rng: random.Random) -> Family:
    """Functions for processors with more instructions, which run where a processor has them, or never."""
    text = (
        "#if defined __x86_64__ && defined __clang__\n#define $TARGET %T%\n#else\n#define $TARGET\n#endif\n"
        "$TARGET @static double $f(const double *a, int n) {\n  double s = 0;\n"
        "  for (int i = 0; i < n; i++) s += a[i];\n"
        "  return s;\n}\nvoid $use(void) { static double a[8] = {1, 2, 3, 4, 5, 6, 7, 8}; if (%IF%) "
        "SAYD(@via($f)(a, 8)); }"
    )
    units = []
    for target, condition in rng.sample(
        [
            ("", "1"),
            ('__attribute__((target("avx2")))', "zero"),
            ('__attribute__((target("avx512f")))', "zero"),
            ('__attribute__((target("sse4.2")))', "zero"),
            ('__attribute__((target("no-sse3")))', "1"),
            ('__attribute__((target("tune=znver4")))', "1"),
        ],
        rng.choice([2, 3, 4]),
    ):
        units.append(Unit(fill(text, T=target, IF=condition)))
    return Family("target", units, attributes=False)


def conventions(rng: random.Random) -> Family:
    """Calling conventions, structs by value, and results in memory."""
    text = (
        "#ifndef __x86_64__\n#define ms_abi used\n#define vectorcall used\n#define regcall used\n#endif\n"
        "#ifndef __clang__\n#define preserve_most used\n#define vectorcall used\n#define regcall used\n#endif\n"
        "typedef struct $s { %M% } $S;\n"
        "__attribute__((%C%, noinline)) static $S $f($S s, int x) { @dress(x) s.a = s.a + x; s.b = s.b * 2; "
        "return s; }\n"
        "void $use(void) { $S s = {3, 4}; s = $f(s, one); SAY((i64)s.a); SAY((i64)s.b); s = @via($f)(s, 5); "
        "SAY((i64)s.a); }"
    )
    members = rng.choice(
        [
            ["long a; long b;", "double a; double b;", "long a; double b;", "int a; int b;", "float a; float b;"],
            ["long a; long b; long c;", "double a; double b; long c;", "i64 a; i64 b; char c[8];"],
            ["long a; long b;", "i64 a; i64 b;", "ulong a; ulong b;"],
        ]
    )
    convention = rng.random() < 0.5
    units = [
        Unit(
            fill(
                text,
                M=rng.choice(members),
                C=rng.choice(["used", "ms_abi", "vectorcall", "regcall"]) if convention else "used",
            )
        )
        for _ in range(rng.choice([2, 3]))
    ]
    return Family("convention", units, attributes=False)


def kept_registers(rng: random.Random) -> Family:
    """Integer types of other signs and widths whose operations are spelled the same."""
    types = rng.sample(
        ["int", "unsigned", "long", "ulong", "short", "unsigned short", "signed char", "unsigned char"], 3
    )
    body = rng.choice(
        [
            "return (i64)(a / 4 + (a >> 2) + (a < b));",
            "return (i64)(a % 3) + (a > b ? 100 : 200);",
            "%T% c = (%T%)(a ^ b); return (i64)c * 2 + (c < 0);",
            "return (i64)(%T%)(a & 0x7f) + (i64)(b >> 1);",
            "i64 s = 0; for (%T% i = 0; i < (%T%)5; i++) s += i * 3 + (a > i); return s;",
            "switch (a & 3) { case 0: return b; case 1: return a > 100; case 2: return -1; default: return (i64)a; }",
        ]
    )
    units = [
        Unit(
            fill(
                f"@static i64 $f(%T% a, %T% b) {{ @dress(a) {body} }}\n"
                "void $use(void) { SAY(@via($f)((%T%)(-7 * one), (%T%)100)); SAY($f((%T%)9, (%T%)one)); }",
                T=kind,
            )
        )
        for kind in types
    ]
    return Family("integers", units)


KINDS = (promised, promised, callee_attributes, harmless, harmless, targets, conventions, kept_registers)
