"""Equal text in files with different flags, which decide what is right."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.campaign.program import Family, Language, Unit, fill


def _flagged(
    kind: str,
    rng: random.Random,
    text: str,
    flag: str | tuple[str, ...],
    with_flag: str,
    without: str,
    language: Language | None = None,
    identity: bool = False,
) -> Family:
    """Return units of one text; those in files with the flag make other calls than those in files without."""
    flags = (flag,) if isinstance(flag, str) else flag
    units = [
        Unit(fill(text, USES=with_flag), flags),
        *(Unit(fill(text, USES=without)) for _ in range(rng.choice([1, 1, 2]))),
    ]
    rng.shuffle(units)
    return Family(kind, units, language, exact=True, identity=identity)


def wrapping(rng: random.Random) -> Family:
    """Overflow checks, which are right where signed integers and pointers wrap."""
    flag = rng.choice(["-fwrapv", "-fno-strict-overflow"])
    function, wrapped, normal = rng.choice(
        [
            (
                "@static int $f(int x) { @dress(1) return x + 1 < x; }",
                "SAY(@via($f)(0x7fffffff - zero));",
                "SAY($f(one));",
            ),
            (
                "@static int $f(int x, int n) { return x + n < x ? 7 : 8; }",
                "SAY(@via($f)(0x7fffffff - zero, 5)); SAY($f(1, 2));",
                "SAY(@via($f)(one, 5));",
            ),
            (
                "@static int $f(const char *p, ulong n) { @dress(2) return p + n < p; }",
                "static char c[4]; SAY($f(c, (1UL << 63) - (ulong)zero)); SAY($f(c, 3));",
                "static char c[4]; SAY($f(c, 3));",
            ),
            (
                "@static const char *$add(const char *p, ulong n) { @dress(2) return p + n; }\n"
                "@static int $f(const char *p, ulong n) { return $add(p, n) < p; }",
                "static char c[4]; SAY($f(c, (1UL << 63) - (ulong)zero)); SAY($f(c, 3));",
                "static char c[4]; SAY($f(c, 3));",
            ),
            (
                "@static const long *$add(const long *p, long n) { return p + n; }\n"
                "@static int $f(const long *p, long n) { return $add(p, n) > p; }",
                "static long c[4]; SAY($f(c, (1L << 60) * one * 15)); SAY($f(c, 3));",
                "static long c[4]; SAY($f(c, 3));",
            ),
            (
                "@static int $add(int x, int n) { @dress(x) return x + n; }\n"
                "@static int $f(int x) { return $add(x, 1) < x; }",
                "SAY(@via($f)(0x7fffffff - zero));",
                "SAY($f(one));",
            ),
            (
                "@static i64 $f(int a, int b) { return (i64)(a * b) + 1; }",
                "SAY(@via($f)(0x10000 * one, 0x10001));",
                "SAY(@via($f)(one, 0x10001));",
            ),
            (
                "@static int $g(int x) { return -x; }\n@static int $f(int x) { int y = $g(x); return y < 0 && x < 0; }",
                "SAY(@via($f)(-0x7fffffff - one));",
                "SAY(@via($f)(-0x7fffffff - zero));",
            ),
            (
                "@static int $f(int n) { int s = 0; for (int i = n; i > 0; i += 0x40000000) s++; return s; }",
                "SAY($f(one)); SAY(@via($f)(zero));",
                "SAY(@via($f)(zero));",
            ),
            (
                "@static i64 $f(const long *p, int i) { return p[i + 1] - p[i]; }",
                "static long a[4] = {1, 3, 7, 20}; SAY($f(a + 1, one));",
                "static long a[4] = {1, 3, 7, 20}; SAY($f(a + 1, one));",
            ),
            (
                "@static int $f(int x) { return (x * 2) / 2 == x; }",
                "SAY(@via($f)(0x60000000 + zero));",
                "SAY(@via($f)(one));",
            ),
            (
                "@static int $f(int x) { int y = x < 0 ? -x : x; return y >= 0; }",
                "SAY(@via($f)(-0x7fffffff - one));",
                "SAY(@via($f)(-one));",
            ),
        ]
    )
    return _flagged("wrapv", rng, function + "\nvoid $use(void) { %USES% }", flag, wrapped, normal)


def null_checks(rng: random.Random) -> Family:
    """Checks for null after an access that is no access, where such checks are kept."""
    function = rng.choice(
        [
            "typedef struct $s { int a, b; } $S;\n"
            "@static int $f($S *p) { int *b = &p->b; @dress(1) if (!p) return 7; return *b; }",
            "typedef struct $s { int b; } $S;\n@static int $get(int *q) { return q ? *q : 9; }\n"
            "@static int $f($S *p) { return $get(&p->b); }",
            "typedef struct $s { int b; } $S;\n"
            "__attribute__((nonnull(1))) @static int $f($S *p) { @dress(2) return p == ($S *)0 ? 7 : p->b; }",
        ]
    )
    nothing = "SAY(@via($f)(($S *)opaque((void *)0)));"
    something = "static $S s; s.b = 5; SAY(@via($f)(&s));"
    return _flagged(
        "null",
        rng,
        function + "\nvoid $use(void) { %USES% }",
        "-fno-delete-null-pointer-checks",
        something + nothing if "nonnull" not in function else something,
        something,
    )


def strict_aliasing(rng: random.Random) -> Family:
    """Accesses of other types, where they may alias."""
    function = rng.choice(
        [
            "@static int $f(int *p, float *q) { *p = 1; *q = 2; @dress(1) return *p; }",
            "@static void $set(float *q) { *q = 2; }\n@static int $f(int *p, float *q) { *p = 1; $set(q); return *p; }",
            "@static int $get(int *p) { return *p; }\n"
            "@static int $f(int *p, float *q) { *p = 1; *q = 2; return @via($get)(p); }",
        ]
    )
    punned = "static int i[2]; SAY(@via($f)(i, (float *)(void *)&i[zero])); SAY($f(i, (float *)(void *)&i[1]));"
    normal = "static int i; static float x; SAY(@via($f)(&i, &x));"
    return _flagged("aliasing", rng, function + "\nvoid $use(void) { %USES% }", "-fno-strict-aliasing", punned, normal)


def floating_point(rng: random.Random) -> Family:
    """Arithmetic that is exact everywhere, and rounds or is special in files whose flags say what is right."""
    flag, function, special, exact = rng.choice(
        [
            (
                "-ffp-contract=off",
                "@static double $f(double a, double b, double c) { return a * b + c; }",
                "SAYD(@via($f)(1.1 * one, 1.3, -1.43));",
                "SAYD(@via($f)(2.0 * one, 3.0, 4.0));",
            ),
            (
                "-ffast-math",
                "@static double $f(double x, double y) { return x * y + x - x; }",
                "SAYD(@via($f)(2.0 * one, 4.0));",
                "SAYD(@via($f)(1e300 * one, 1e300)); SAYD(@via($f)(1e16 * one, 1.5));",
            ),
            (
                "-ffast-math",
                "@static int $f(double x) { @dress(1) return x != x; }",
                "SAY(@via($f)(2.0 * one));",
                "SAY(@via($f)(__builtin_inf() * zero)); SAY(@via($f)(1.0));",
            ),
            (
                "-fno-signed-zeros",
                "@static double $f(double x) { return x + 0.0; }",
                "SAYD(@via($f)(2.0 * one));",
                "SAYD(@via($f)(-0.0 * one));",
            ),
            (
                "-freciprocal-math",
                "@static double $f(double x) { return x / 3.0 + x / 8.0; }",
                "SAYD(@via($f)(0.0 * one));",
                "SAYD(@via($f)(5.0 * one));",
            ),
            (
                "-ffinite-math-only",
                "@static int $f(double x) { return x * 0.0 == 0.0 ? 4 : 5; }",
                "SAY(@via($f)(2.0 * one));",
                "SAY(@via($f)(1e308 * 10 * one));",
            ),
            (
                "-fassociative-math -fno-signed-zeros -fno-trapping-math",
                "@static double $f(double a, double b) { return (a + b) - a; }",
                "SAYD(@via($f)(2.0 * one, 4.0));",
                "SAYD(@via($f)(1e16 * one, 1.0));",
            ),
        ]
    )
    # Without contraction, so that every file has one right result on processors with fused multiplication, too.
    text = (
        "#ifdef __clang__\n#pragma clang fp contract(off)\n#endif\n" if flag != "-ffp-contract=off" else ""
    ) + function
    return _flagged("float", rng, text + "\nvoid $use(void) { %USES% }", tuple(flag.split()), special, exact)


def rounding(rng: random.Random) -> Family:
    """Arithmetic with constants after a change of the rounding mode, where flags say that it may change."""
    text = (
        "#include <fenv.h>\n@static double $third(double x) { double a = 1.0, b = 3.0; @dress(1) return a / b "
        "* x; }\n"
        "void $use(void) { %USES% }"
    )
    upward = (
        "fesetround(FE_UPWARD); double up = VIA($third)(one); fesetround(FE_TONEAREST);"
        " SAYD(up); SAYD(@via($third)(one));"
    )
    family = _flagged("rounding", rng, text, "-frounding-math", upward, "SAYD(@via($third)(one));")
    return replace(family, libraries=("-lm",))


def math_errno(rng: random.Random) -> Family:
    """Functions of math.h that set errno, and calls that must not matter where they do not."""
    call = rng.choice(["sqrt", "log"])
    text = (
        f"#include <errno.h>\n#include <math.h>\n@static int $f(double x) {{ errno = 0; double y = {call}(x);"
        f" @dress(1) return errno == EDOM ? 7 : (int)y; }}\nvoid $use(void) {{ %USES% }}"
    )
    family = _flagged("errno", rng, text, "-fno-math-errno", "SAY(@via($f)(1.0 * one));", "SAY(@via($f)(-4.0 * one));")
    return replace(family, libraries=("-lm",))


def trapping(rng: random.Random) -> Family:
    """-ftrapv next to files without it; and whether the trap comes."""
    text = (
        "#include <sys/wait.h>\n#include <unistd.h>\n@static int $f(int x) { @dress(1) return x + 1 > x; }\n"
        "void $use(void) { %USES% }"
    )
    trapped = (
        "int pid = fork(), status = 0; if (pid == 0) { volatile int r = @via($f)(0x7fffffff - zero); _exit(r); }"
        " waitpid(pid, &status, 0); SAY(WIFSIGNALED(status) != 0); SAY($f(one));"
    )
    return _flagged("trapv", rng, text, ("-ftrapv",), trapped, "SAY(@via($f)(one));")


BUILTIN_ANYWAY = ("ffsl", "isascii", "toascii")


def own_functions(rng: random.Random) -> Family:
    """A program's own function with the name of a library function, where flags say that it is no builtin."""
    name, signature, body, call = rng.choice(
        [
            ("ffsl", "int ffsl(long x)", "return x ? 77 : 3;", "SAY(ffsl(8 * one)); SAY(ffsl(16));"),
            ("toascii", "int toascii(int x)", "return x + 1;", "SAY(toascii(200)); SAY(toascii(one));"),
            ("isascii", "int isascii(int x)", "return x + 5;", "SAY(isascii(65)); SAY(isascii(one));"),
            ("labs", "long labs(long x)", "return x * 2;", "SAY(labs(-4)); SAY(labs(-one));"),
            ("cbrtf", "float cbrtf(float x)", "return x + 1;", "SAYD(cbrtf(8)); SAYD(cbrtf((float)one));"),
            ("ldexp", "double ldexp(double x, int n)", "return x - n;", "SAYD(ldexp(2, 3)); SAYD(ldexp(one, one));"),
            ("exp2", "double exp2(double x)", "return x + 0.5;", "SAYD(exp2(2)); SAYD(exp2(one));"),
            ("roundf", "float roundf(float x)", "return x * 2;", "SAYD(roundf(2.5f)); SAYD(roundf(one * 1.5f));"),
            (
                "strnlen",
                "ulong strnlen(const char *s, ulong n)",
                "return n + (ulong)(s != 0);",
                'SAY((i64)strnlen("abc", 9));',
            ),
            ("isdigit", "int isdigit(int x)", "return x - 5;", "SAY(isdigit(48)); SAY(isdigit(one));"),
        ]
    )
    prefix = '#ifdef __cplusplus\nextern "C" {\n#endif\n'
    suffix = "#ifdef __cplusplus\n}\n#endif\n"
    # LLVM takes some for builtins in spite of -fno-builtin-NAME.
    flag = rng.choice(["-fno-builtin", "-ffreestanding", *([] if name in BUILTIN_ANYWAY else [f"-fno-builtin-{name}"])])
    everywhere = Unit(
        f"{prefix}{signature};\n{suffix}@static void $f(void) {{ {call} }}\nvoid $use(void) {{ $f(); }}", (flag,)
    )
    definition = Unit(f"{prefix}NOINLINE {signature} {{ {body} }}\n{suffix}void $use(void) {{ {call} }}", (flag,))
    return Family(
        f"own {name}", [definition, everywhere], "c", exact=True, together=True, apart=rng.random() < 0.7, single=True
    )


def instrumented(rng: random.Random) -> Family:
    """Equal functions, each of which reports its own address on entry."""
    header = (
        '#ifdef __cplusplus\nextern "C" {\n#endif\n#define NOT __attribute__((no_instrument_function))\n'
        "extern void *entered[64]; extern int entries;\n#ifdef __cplusplus\n}\n#endif\n"
    )
    owner = (
        "void *entered[64]; int entries;\nNOT void __cyg_profile_func_enter(void *f, void *c) {"
        " (void)c; if (entries < 64) entered[entries++] = f; }\n"
        "NOT void __cyg_profile_func_exit(void *f, void *c) { (void)f; (void)c; }\n"
        "NOT void $use(void) { SAY(0); }"
    )
    text = (
        "NOINLINE int $open(int x) { @dress(x) return x * 3 + 1; }\n"
        "NOT void $use(void) {\n  int (*volatile f)(int) = $open;\n  entries = 0;\n  f(one);\n"
        "  int found = 0;\n  for (int i = 0; i < entries; i++) found += entered[i] == (void *)f;\n  SAY(found);\n}"
    )
    count = rng.choice([2, 3])
    return Family(
        "instrument",
        [Unit(owner), *(Unit(text, ("-finstrument-functions",)) for _ in range(count))],
        "c",
        header=header,
        identity=True,
        together=True,
        attributes=False,
        single=True,
        external=True,
    )


def enumerations(rng: random.Random) -> Family:
    """Enumerations of C++, whose values are in a range where flags say so."""
    text = (
        "enum $E { $zero, $one, $two, $three };\n"
        "@static int $f(const $E *p) { @dress(1) return *p > $three ? 9 : *p; }\n"
        "void $use(void) { static $E e[2] = {$one, %LAST%}; SAY(@via($f)(&e[zero])); SAY($f(&e[one])); }"
    )
    # A value out of range is none of an enumeration without a fixed type, so these have one.
    loose = text.replace("enum $E {", "enum $E : unsigned {")
    units = [
        Unit(fill(text, LAST="$three"), ("-fstrict-enums",)),
        Unit(fill(loose, LAST="($E)7"), ("-fstrict-enums",) if rng.random() < 0.5 else ()),
    ]
    rng.shuffle(units)
    return Family("enums", units, "cc", exact=True)


def exceptions_in_c(rng: random.Random) -> Family:
    """C functions of files with and without -fexceptions, and C++ exceptions through the first."""
    header = (
        '#ifdef __cplusplus\nextern "C" {\n#endif\nlong $$through(void (*f)(int), int x);\n'
        "long $$never(void (*f)(int), int x);\n#ifdef __cplusplus\n}\n#endif\n"
    )
    through = (
        "NOINLINE long $$%NAME%(void (*f)(int), int x) { @dress(x) f(x); @dress(x) return x + 10; }\n"
        "void $use(void) { SAY(1); }"
    )
    thrower = (
        "static void $throwing(int x) { if (x > 1) throw x; }\nstatic void $calm(int x) { step(x, 1, 2, 3); }\n"
        "void $use(void) {\n  SAY($$never(@via($calm), one));\n  SAY($$through(@via($calm), one));\n"
        "  for (int i = 0; i < 3; i++) try { SAY($$through($throwing, i + zero)); } catch (int e) { SAY(100 + "
        "e); }\n}"
    )
    return Family(
        "c exceptions",
        [
            Unit(fill(through, NAME="through"), ("-fexceptions",)),
            Unit(fill(through, NAME="never"), ("-O1",)),
            Unit(thrower, language="cc"),
        ],
        "c",
        header=header,
        exact=True,
        attributes=False,
    )


KINDS = (
    wrapping,
    wrapping,
    wrapping,
    null_checks,
    strict_aliasing,
    floating_point,
    floating_point,
    rounding,
    math_errno,
    trapping,
    own_functions,
    instrumented,
    enumerations,
    exceptions_in_c,
)
