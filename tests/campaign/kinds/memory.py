"""Functions that differ in the types of their accesses, in what may alias, and in what is copied."""

from __future__ import annotations

import random

from tests.campaign.program import Family, Unit, fill

VALUES = (("long", "i64", "ulong"), ("int", "unsigned"), ("short", "unsigned short"), ("double",), ("float",))
"""Types of one representation; a family takes its types from one of them."""

SETTERS = {
    "store": ("@static void $set(%S% *p, %V% v) { @dress(v) p->v = v; }", "@via($set)(q, %A%);"),
    "late": ("@static void $set(%S% *p, %V% v) { p->v = v; @dress(v) }", "@via($set)(q, %A%);"),
    "add": ("@static void $set(%S% *p, %V% v) { p->v = (%V%)(p->v * 0 + v); }", "@via($set)(q, %A%);"),
    "copy": (
        "@static void $set(%S% *p, const %S% *from) { *p = *from; @dress(1) }",
        "{ %S% from; from.v = %A%; @via($set)(q, &from); }",
    ),
    "by value": ("@static void $set(%S% *p, %S% from) { *p = from; }", "{ %S% from; from.v = %A%; $set(q, from); }"),
    "fill": (
        "@static void $set(%S% *p, int n, %V% v) { for (int i = 0; i < n; i++) p[i].v = v; @dress(n) }",
        "@via($set)(q, one, %A%);",
    ),
    "swap": (
        "@static void $set(%S% *p, %S% *o) { %V% t = p->v; p->v = o->v; o->v = t; @dress(2) }",
        "{ %S% o; o.v = %A%; @via($set)(q, &o); }",
    ),
    "old": ("@static %V% $set(%S% *p, %V% v) { %V% old = p->v; p->v = v; return old; }", "SAY((i64)$set(q, %A%));"),
    "self": ("@static %S% *$set(%S% *p, %V% v) { p->v = v; return p + 1; }", "@via($set)(q, %A%);"),
    "indirect": (
        "@static void $set(%S% **p, %V% v) { (*p)->v = v; @dress(v) }",
        "{ %S% *r = q; @via($set)(&r, %A%); }",
    ),
    "condition": (
        "@static void $set(%S% *p, %V% v) { if (one > 3) p->v = 77; else p->v = v; @dress(v) }",
        "@via($set)(q, %A%);",
    ),
    "tail": (
        "@static void $in(%S% *p, %V% v) { p->v = v; @dress(v) }\n"
        "@static void $set(%S% *p, %V% v) { @via($in)(p, v); }",
        "@via($set)(q, %A%);",
    ),
    "callback": (
        "@static void $in(%S% *p, %V% v) { p->v = v; }\n"
        "@static void $set(%S% *p, %V% v, void (*f)(%S% *, %V%)) { f(p, v); }",
        "$set(q, %A%, @via($in));",
    ),
    "recursion": (
        "@static void $set(%S% *p, %V% v, int n) { if (n) { $set(p, v, n - 1); return; } p->v = v; @dress(v) }",
        "@via($set)(q, %A%, one);",
    ),
    "atomic": (
        "@static void $set(%S% *p, %V% v) { if (zero) __atomic_store_n((char *)p, 1, __ATOMIC_SEQ_CST); p->v = v; }",
        "@via($set)(q, %A%);",
    ),
    "loop down": (
        "@static void $set(%S% *p, %S% *from, int n) { while (n--) p[n] = from[n]; }",
        "{ %S% from; from.v = %A%; @via($set)(q, &from, one); }",
    ),
    "memcpy": (
        "@static void $set(%S% *p, %V% *from) { __builtin_memcpy(&p->v, from, sizeof *from); @dress(5) }",
        "{ %V% from = %A%; @via($set)(q, &from); }",
    ),
}
USERS = {
    "twice": "@static %V% $twice(%S% *p, %S% *q) { p->v = 3; %CALL% return p->v; }",
    "loop": "@static %V% $twice(%S% *p, %S% *q) {\n  %V% sum = 0;\n  for (int i = 0; i < 3; i++) { p->v = 9; %CALL%"
    " sum = (%V%)(sum + p->v); }\n  return sum;\n}",
    "branch": "@static %V% $twice(%S% *p, %S% *q) { p->v = 3; if (one) { %CALL% } @dress(4) return p->v; }",
    "dead store": "@static %V% $read(%S% *p) { return p->v; }\n"
    "@static %V% $twice(%S% *p, %S% *q) { %CALL% p->v = 8; %V% t = $read(q); p->v = 9; return (%V%)(t + p->v); }",
    "twice read": "@static %V% $twice(%S% *p, %S% *q) { %V% a = p->v; %CALL% return (%V%)(a * 2 + p->v); }",
}
STRUCTS = (
    "typedef struct $tag { %V% v; } %S%;",
    "typedef struct $tag { int other; %V% v; } %S%;",
    "typedef struct $tag { %V% v; char rest[3]; } %S%;",
    "typedef struct $tag { struct $inner { %V% v; } in; } %S%;\n#define v_%S% in.v",
    "typedef union $tag { %V% v; char bytes[16]; } %S%;",
    "typedef struct $tag { char name[8]; %V% v; double d; } %S%;",
)


def setters(rng: random.Random) -> Family:
    """Stores through a pointer of another type of one layout."""
    group = rng.choice(VALUES)
    count = rng.choice([2, 2, 3])
    setter, call = SETTERS[rng.choice(list(SETTERS))]
    user = USERS[rng.choice(list(USERS))]
    same_constant = rng.random() < 0.4
    structs = [s for s in STRUCTS if "in.v" not in s]
    struct = rng.choice(structs)
    units = []
    for index in range(count):
        value = group[0] if rng.random() < 0.6 else rng.choice(group)
        answer = "5" if same_constant else str(5 + index)
        text = fill(
            f"{struct}\n{setter}\n{user}\n"
            "static %S% $a[2];\nvoid $use(void) { SAY((i64)$twice(&$a[one - 1], &$a[0])); SAY((i64)$a[0].v); }",
            CALL=call,
        )
        units.append(Unit(fill(text, S="$S", V=value, A=answer)))
    return Family("setters", units)


def scalars(rng: random.Random) -> Family:
    """Stores through pointers to scalars of one representation, enumerations too."""
    group = rng.choice([["long", "i64", "ulong", "unsigned long long"], ["int", "unsigned", "$Color"]])
    setter, call = rng.choice(
        [
            ("@static void $set(%V% *p, %V% v) { @dress(v) *p = v; }", "@via($set)(q, (%V%)%A%);"),
            (
                "@static void $set(%V% *p, int n, %V% v) { for (int i = 0; i < n; ++i) p[i] = v; }",
                "$set(q, one, (%V%)%A%);",
            ),
            (
                "@static void $set(%V% *p, %V% *f) { %V% t = *p; *p = *f; *f = t; }",
                "{ %V% f = (%V%)%A%; $set(q, &f); }",
            ),
            ("@static void $set(%V% **p, %V% v) { **p = v; @dress(3) }", "{ %V% *r = q; @via($set)(&r, (%V%)%A%); }"),
        ]
    )
    user = rng.choice(
        [
            "@static %V% $twice(%V% *p, %V% *q) { *p = (%V%)1; %CALL% return *p; }",
            "@static %V% $twice(%V% *p, %V% *q) { %V% a = *p; for (int i = 0; i < 2; i++) { %CALL% a = *p; } "
            "return a; }",
        ]
    )
    units = []
    for index in range(rng.choice([2, 3])):
        value = rng.choice(group)
        text = fill(
            "typedef enum $e { $red, $green, $blue, $all = 0x7fffffff } $Color;\n"
            f"{setter}\n{user}\nstatic %V% $a[2];\n"
            "void $use(void) { SAY((i64)$twice(&$a[one - 1], &$a[0])); SAY((i64)$a[0]); }",
            CALL=call,
        )
        units.append(Unit(fill(text, V=value, A=2 + index)))
    return Family("scalars", units)


def copies(rng: random.Random) -> Family:
    """Copies of structs that have one size and other members (tbaa.struct)."""
    pairs = (
        *("long v; long w;", "double v; double w;", "i64 v; ulong w;", "long v; double w;", "char *v; long w;"),
        *("int v; int x; long w;", "float v; int x; double w;", "short v; short x; int y; long w;"),
    )
    longs, ints = ("long v;", "double v;", "i64 v;", "char *v;", "ulong v;"), ("int v;", "float v;", "unsigned v;")
    members = rng.sample(rng.choice([pairs, longs, ints]), rng.choice([2, 3]))
    copy = rng.choice(
        [
            "@static void $copy($S *to, const $S *from) { *to = *from; @dress(1) }",
            "@static $S $get(const $S *from) { return *from; }\n@static void $copy($S *to, const $S *from)"
            " { *to = @via($get)(from); }",
            "@static void $copy($S *to, const $S *from) { __builtin_memcpy(to, from, sizeof *to); }",
            "@static void $copy($S *to, const $S *from) { __builtin_memmove(to, from, sizeof *to); @dress(2) }",
            "@static void $copy($S *to, const $S *from) { $S t[1]; t[0] = *from; *to = t[0]; }",
        ]
    )
    units: list[Unit] = []
    for member in members:
        to_long = "(i64)(long)" if "char *v" in member else "(i64)"
        kind = "(char *)" if "char *v" in member else ""
        second, stored, result = ("a->w = 4;", "$c.w = 3;", "(i64)a->w") if " w;" in member else ("", "", "0")
        units.append(
            Unit(
                f"typedef struct $s {{ {member} }} $S;\n{copy}\n"
                f"@static i64 $twice($S *a, $S *b, const $S *c) {{ a->v = {kind}{len(units) + 10}; {second}"
                f" @via($copy)(b, c); return {to_long}a->v * 100 + {result}; }}\n"
                "static $S $a[2], $c;\n"
                f"void $use(void) {{ $c.v = {kind}2; {stored} SAY($twice(&$a[one - 1], &$a[0], &$c)); }}"
            )
        )
    return Family("copies", units)


def loads(rng: random.Random) -> Family:
    """Loads that are promised to be in a range, aligned, not null or invariant, and the same loads without."""
    text = "@static i64 $load(%P%) { @dress(1) %BODY% }\n%REST%\nvoid $use(void) { %CALLS% }"
    kinds = [
        # bool against unsigned char
        [
            (
                "const %B% *p",
                "return *p ? *p + 4 : 9;",
                "static %B% $a[3] = {0, 1, %L%};",
                "SAY($load(&$a[%I%]));",
                ("_Bool", "1"),
            ),
            (
                "const %B% *p",
                "return *p ? *p + 4 : 9;",
                "static %B% $a[3] = {0, 1, %L%};",
                "SAY($load(&$a[%I%]));",
                ("unsigned char", "200"),
            ),
        ],
        [
            (
                "const %B% *p",
                "return (*p & 1) == *p;",
                "static %B% $a[3] = {0, 1, %L%};",
                "SAY($load(&$a[%I%]));",
                ("_Bool", "0"),
            ),
            (
                "const %B% *p",
                "return (*p & 1) == *p;",
                "static %B% $a[3] = {0, 1, %L%};",
                "SAY($load(&$a[%I%]));",
                ("unsigned char", "7"),
            ),
        ],
    ]
    chosen = rng.choice(kinds)
    units = []
    for parameter, body, rest, call, (kind, last) in rng.sample(chosen, 2):
        calls = " ".join(fill(call, I=f"{i} + zero") for i in range(3))
        full = fill(text, P=parameter, BODY=body, REST=rest, CALLS=calls)
        full = fill(full, B=kind, L=last)
        units.append(Unit("#ifdef __cplusplus\n#define _Bool bool\n#endif\n" + full))
    return Family("loads", units)


def promises(rng: random.Random) -> Family:
    """The same statements with and without a promise: assume, unreachable, aligned, restrict, pragmas of loops."""
    shapes = [
        # (parameters, with the promise, without it, calls with it, calls without it)
        (
            "i64 $f(int x)",
            ["ASSUME(x > 0); return x > 0 ? 3 : 4;", "if (x <= 0) __builtin_unreachable(); return x > 0 ? 3 : 4;"],
            ["return x > 0 ? 3 : 4;"],
            "SAY(@via($f)(one));",
            "SAY(@via($f)(one)); SAY(@via($f)(zero - 5));",
        ),
        (
            "i64 $f(const int *p)",
            ["p = (const int *)__builtin_assume_aligned(p, 64); return ((ulong)p & 63) == 0;"],
            ["return ((ulong)p & 63) == 0;"],
            "static int a[20] __attribute__((aligned(64))); SAY(@via($f)(a));",
            "static int a[20] __attribute__((aligned(64))); SAY(@via($f)(a)); SAY(@via($f)(a + one));",
        ),
        (
            "i64 $f(%Q%, int n)",
            ["int *restrict a, int *restrict b"],
            ["int *a, int *b"],
            "static int a[4], b[4]; SAY($f(a, b, one)); SAY(a[1] + b[1]);",
            "static int a[4]; SAY($f(a, a + zero, one)); SAY(a[1]);",
        ),
        (
            "i64 $f(int *a, int *b, int n)",
            [
                '_Pragma("clang loop vectorize(assume_safety)") for (int i = 0; i < n; i++) a[i] = b[i] + 1; '
                "return a[n - 1];",
                '_Pragma("clang loop vectorize(assume_safety) interleave(enable)") for (int i = 0; i < n; i++) '
                "a[i] = b[i] + 1; return a[n - 1];",
            ],
            [
                "for (int i = 0; i < n; i++) a[i] = b[i] + 1; return a[n - 1];",
                '_Pragma("clang loop unroll_count(4)") for (int i = 0; i < n; i++) a[i] = b[i] + 1; return a[n - 1];',
                '_Pragma("clang loop vectorize(disable)") for (int i = 0; i < n; i++) a[i] = b[i] + 1; return '
                "a[n - 1];",
            ],
            "static int a[40], b[40]; SAY(@via($f)(a, b, 36 * one));",
            "static int a[40]; SAY(@via($f)(a + 1, a, 36 * one)); SAY(a[20]);",
        ),
        (
            "i64 $f(int x)",
            ["if (__builtin_expect(x > 3, 1)) return step(x, 2, 3, 4); return x;"],
            [
                "if (__builtin_expect(x > 3, 0)) return step(x, 2, 3, 4); return x;",
                "if (x > 3) return step(x, 2, 3, 4); return x;",
                "if (__builtin_expect_with_probability(x > 3, 1, 0.7)) return step(x, 2, 3, 4); return x;",
            ],
            "SAY(@via($f)(one)); SAY($f(one + 7));",
            "SAY(@via($f)(one)); SAY($f(one + 8));",
        ),
        (
            "i64 $f(unsigned char *p, unsigned char *q, int n)",
            ["__builtin_memcpy(p, q, (ulong)n); return p[n - 1];"],
            ["__builtin_memmove(p, q, (ulong)n); return p[n - 1];"],
            "static unsigned char a[40], b[40] = {1, 2, 3, 4, 5, 6, 7, 8, 9}; SAY(@via($f)(a, b, 9 * one)); SAY(a[4]);",
            "static unsigned char b[40] = {1, 2, 3, 4, 5, 6, 7, 8, 9}; SAY(@via($f)(b + 1, b, 9 * one)); SAY(b[4]);",
        ),
        (
            "i64 $f(int x)",
            ["unsigned char c = (unsigned char)x; return (c << 3) + (c >> 1);"],
            ["signed char c = (signed char)x; return c * 8 + (c >> 1);"],
            "SAY(@via($f)(one * 200)); SAY($f(3));",
            "SAY(@via($f)(one * 200)); SAY($f(3));",
        ),
    ]
    signature, promised, free, promised_calls, free_calls = rng.choice(shapes)
    units = []
    for index in range(rng.choice([2, 2, 3])):
        with_promise = index == 0 if index < 2 else rng.random() < 0.5
        if "%Q%" in signature:
            head = fill(signature, Q=rng.choice(promised if with_promise else free))
            head = head.replace("restrict", "__restrict")
            body = "a[1] = 4; b[1] = 5 + n; @dress(n) return a[1];"
        else:
            head, body = signature, rng.choice(promised if with_promise else free)
        calls = promised_calls if with_promise else free_calls
        units.append(Unit(f"@static {head} {{ {body} }}\nvoid $use(void) {{ {calls} }}"))
    if rng.random() < 0.5:
        units.reverse()
    return Family("promises", units)


def restrict_callers(rng: random.Random) -> Family:
    """A restrict parameter of an inlined helper, and the same helper without."""
    body = rng.choice(
        [
            "*a = 1; *b = v; return *a;",
            "for (int i = 0; i < 3; i++) { *a += *b; *b += v; } return *a;",
            "*a = 1; *b = v; return 0;",
            "*a = v; *b = *a + 1; *a = 3; return 0;",
            "a[0] = b[1] + v; a[1] = b[0] + v; return 0;",
        ]
    )
    loose = Unit(
        f"@static i64 $help(long *a, long *b, long v) {{ @dress(v) {body} }}\n"
        "@static i64 $twice(long *a, long *b, long v) { return $help(a, b, v) + 1000; }\n"
        "static long $a[8];\n"
        "void $use(void) { SAY($twice(&$a[zero], &$a[0], 5)); SAY($a[0]); SAY($a[1]); }"
    )
    tight = Unit(
        loose.text.replace("$help(long *a, long *b", "$help(long *__restrict a, long *__restrict b").replace(
            "$twice(&$a[zero], &$a[0], 5)", "$twice(&$a[zero], &$a[4], 5)"
        )
    )
    units = [tight, loose] if rng.random() < 0.5 else [loose, tight]
    return Family("restrict", units)


def bit_fields(rng: random.Random) -> Family:
    """Bit fields of other widths, places and signs, or with members after them."""
    layouts = rng.sample(
        [
            "int a : 5; int b : 9;",
            "unsigned a : 5; unsigned b : 9;",
            "int a : 9; int b : 5;",
            "unsigned a : 5; unsigned : 3; unsigned b : 9;",
            "unsigned short a : 5; unsigned short b : 9; char after;",
            "long a : 5; long b : 9;",
            "unsigned long a : 5; unsigned long b : 33;",
            "unsigned a : 5; unsigned : 0; unsigned b : 9;",
        ],
        rng.choice([2, 3]),
    )
    body = rng.choice(
        [
            "p->a = v; p->b = v * 7; return p->a * 1000 + (i64)p->b;",
            "p->b = v; p->a = p->b + 1; q->b = 3; return p->a * 1000 + (i64)p->b + q->a;",
            "q->a = 1; p->a = v; q->b = v; return p->a + (i64)p->b + q->a;",
        ]
    )
    units = [
        Unit(
            f"typedef struct $s {{ {layout} }} $S;\n"
            f"@static i64 $set($S *p, $S *q, int v) {{ @dress(v) {body} }}\n"
            "static $S $a[2];\nvoid $use(void) { SAY($set(&$a[zero], &$a[0], 13 * one)); SAY($set(&$a[0], "
            "&$a[1], 30)); }"
        )
        for layout in layouts
    ]
    return Family("bitfields", units)


def volatiles(rng: random.Random) -> Family:
    """Volatile, atomic and plain accesses of the same variable; atomic orders."""
    accesses = rng.sample(
        [
            ("long", "*p", "*p = v"),
            ("volatile long", "*p", "*p = v"),
            ("long", "__atomic_load_n(p, __ATOMIC_RELAXED)", "__atomic_store_n(p, v, __ATOMIC_RELAXED)"),
            ("long", "__atomic_load_n(p, __ATOMIC_SEQ_CST)", "__atomic_store_n(p, v, __ATOMIC_SEQ_CST)"),
            ("long", "__atomic_fetch_add(p, 0, __ATOMIC_ACQ_REL)", "__atomic_exchange_n(p, v, __ATOMIC_ACQUIRE)"),
            ("long", "*(long *)__builtin_assume_aligned(p, 8)", "__builtin_nontemporal_store(v, p)"),
        ],
        rng.choice([2, 3, 4]),
    )
    units = [
        Unit(
            "#ifndef __clang__\n#define __builtin_nontemporal_store(v, p) (*(p) = (v))\n#endif\n"
            f"@static void $put({kind} *p, long v) {{ {store}; @dress(v) }}\n"
            f"@static long $get({kind} *p) {{ return {load}; }}\n"
            f"@static long $run({kind} *p, {kind} *q) {{ $put(p, 1); $put(q, 2); return $get(p) * 10 + $get(q); }}\n"
            f"static {kind} $a[2];\nvoid $use(void) {{ SAY(@via($run)(&$a[zero], &$a[0])); SAY($run(&$a[0], "
            f"&$a[one])); }}"
        )
        for kind, load, store in accesses
    ]
    return Family("volatile", units)


KINDS = (setters, setters, setters, scalars, copies, loads, promises, promises, restrict_callers, bit_fields, volatiles)
