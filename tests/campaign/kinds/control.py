"""Functions that differ in what they throw, catch, keep, jump to, or read from their arguments."""

from __future__ import annotations

import random

from tests.campaign.program import Family, Unit, fill


def thrown(rng: random.Random) -> Family:
    """Functions that throw or catch objects of types with one layout."""
    shared = rng.random() < 0.5
    header = "struct $$SA { long v; }; struct $$SB { long v; }; struct $$SC : $$SA {};\n"
    types = ["$$SA", "$$SB", "$$SC", "long", "i64", "ulong"] if shared else ["$A", "$B", "$C"]
    own = "" if shared else "namespace { struct $A { long v; }; struct $B { long v; }; struct $C : $A {}; }\n"
    form = rng.choice(["throw", "catch", "both", "destructor", "noexcept", "rethrow", "function"])
    units = []
    for index in range(rng.choice([2, 3])):
        kind = rng.choice(types)
        value = f"{kind}{{{3 + (index if rng.random() < 0.5 else 0)}}}" if "$" in kind else f"({kind})4"
        if kind in ("$C", "$$SC"):
            value = f"{kind}()"
        catches = "".join(
            f" catch (const {t} &) {{ return {10 + i}; }}"
            for i, t in enumerate(types if form == "catch" else types[:2])
        )
        thrower = f"@static void $throw(int x) {{ @dress(x) if (x > 0) throw {value}; }}\n"
        if form == "noexcept":
            calm = rng.choice(["noexcept", ""])
            text = (
                f"@static int $calm(int x) {calm} {{ return x > 5 ? (int)step(x, 1, 2, 3) : x; }}\n"
                f"@static int $f(int x) {{ int r = $calm(x); if (x > 0) throw {value}; return r; }}\n"
                f"@static int $catch(int x) {{ try {{ return $f(x); }}{catches} catch (...) {{ return 99; }} }}\n"
            )
        elif form == "destructor":
            text = (
                f"namespace {{ struct $D {{ int k; ~$D() {{ trace += (ulong)k; say(@label, k); }} }}; }}\n{thrower}"
                f"@static int $f(int x) {{ $D a{{x + {index}}}; $throw(x); $D b{{x + 5}}; return 5; }}\n"
                f"@static int $catch(int x) {{ try {{ return $f(x); }}{catches} catch (...) {{ return 99; }} }}\n"
            )
        elif form == "rethrow":
            text = (
                f"{thrower}@static int $f(int x) {{ try {{ $throw(x); }} catch (const {rng.choice(types)} &) "
                f"{{ @dress(x)"
                f" throw; }} catch (...) {{ throw {rng.choice(['5', '6u', '7L'])}; }} return 3; }}\n"
                f"@static int $catch(int x) {{ try {{ return $f(x); }}{catches} catch (int i) {{ return i; }}"
                " catch (unsigned i) { return (int)i * 2; } catch (...) { return 99; } }\n"
            )
        elif form == "function":
            text = (
                f"{thrower}@static int $catch(int x) try {{ @via($throw)(x); return 6; }}{catches}"
                " catch (...) { return 99; }\n"
            )
        else:
            text = (
                f"{thrower}@static int $catch(int x) {{ try {{ @via($throw)(x); return 6; }}{catches}"
                " catch (...) { @dress(x) return 99; } }\n"
            )
        units.append(Unit(own + text + "void $use(void) { SAY(@via($catch)(one)); SAY($catch(zero)); }"))
    return Family("throw", units, "cc", header=header, attributes=form != "function")


def cleanups(rng: random.Random) -> Family:
    """Cleanups of C variables and of C++ guards, in their order."""
    text = rng.choice(
        [
            "@static void $end(int *p) { @dress(1) step(*p, %K%, 1, 2); trace += (ulong)*p; }\n"
            "@static int $f(int x) { int a __attribute__((cleanup($end))) = x; if (x > 3) return 7;"
            " int b __attribute__((cleanup($end))) = x + %K%; return a + b; }\n"
            "void $use(void) { SAY($f(one)); SAY($f(5)); SAY((i64)(trace & 0xffff)); }",
            "static int $depth;\n@static void $end(char *p) { $depth -= *p; }\n"
            "@static int $f(int x) { for (int i = 0; i < x; i++) { char c __attribute__((cleanup($end))) = "
            "(char)%K%;"
            " $depth += c; if (i == 2) break; if (i == 1) continue; @dress(i) } return $depth; }\n"
            "void $use(void) { SAY($f(4 * one)); }",
        ]
    )
    return Family("cleanup", [Unit(fill(text, K=rng.choice([2, 2, 3]))) for _ in range(rng.choice([2, 3]))])


def statics(rng: random.Random) -> Family:
    """Static and thread-local variables of functions."""
    storage = rng.sample(["static", "static THREAD_LOCAL", "static volatile", "static _Atomic_"], 2)
    storage = [s for s in storage if not s.endswith("_")] or ["static"]
    body = rng.choice(
        [
            "%S% int n = %K%; @dress(x) return n += x;",
            "%S% int n; %S% int m = %K%; n += m; m = x; return n * 10 + m;",
            "%S% int a[3]; a[x % 3]++; return a[0] * 100 + a[1] * 10 + a[2];",
            "%S% int n = %K%; if (n++ > 3) n = %K%; return n;",
        ]
    )
    same = rng.random() < 0.6
    count = rng.choice([2, 3])
    units = [
        Unit(
            fill(
                f"@static int $next(int x) {{ {body} }}\n"
                f"void $use(void) {{ SAY($next(one)); SAY(@via($next)(2)); SAY($next(3)); }}",
                S=rng.choice(storage),
                K=1 if same else 1 + i,
            )
        )
        for i in range(count)
    ]
    return Family("static", units)


def thread_locals(rng: random.Random) -> Family:
    """Equal accesses of thread-local and of plain variables."""
    model = ["", '__attribute__((tls_model("initial-exec")))', '__attribute__((tls_model("local-exec")))']
    text = (
        "static %S% int $v %M% = %K%;\n@static int *$at(void) { return &$v; }\n"
        "@static int $f(int x) { $v += x; @dress(x) return *$at() * 2; }\n"
        "void $use(void) { SAY(@via($f)(one)); SAY($f(4)); }"
    )
    units = [
        Unit(
            fill(
                text,
                S=storage,
                M=rng.choice(model[:2]) if storage else "",
                K=rng.choice([3, 3, 4]),
            )
        )
        for storage in rng.choices(["THREAD_LOCAL", ""], k=rng.choice([2, 3, 4]))
    ]
    return Family("tls", units)


def assembly(rng: random.Random) -> Family:
    """Inline assembly of one text with other constraints, clobbers and operands."""
    x86, arm, plain = rng.choice(
        [
            (
                '__asm__%V%("addl %1, %0" : "+r"(a) : %C%(b)%L%)',
                '__asm__%V%("add %w0, %w0, %w1" : "+r"(a) : "r"(b)%L%)',
                "a += b",
            ),
            ('__asm__%V%("" : "+r"(a), "+%R%"(b)%X%)', '__asm__%V%("" : "+r"(a), "+r"(b)%X%)', "a += 0"),
            (
                '__asm__%V%("leal 3(%1), %0" : "=%E%"(a) : "r"(b)%L%)',
                '__asm__%V%("add %w0, %w1, #3" : "=%E%"(a) : "r"(b)%L%)',
                "a = b + 3",
            ),
            (
                '__asm__%V%("movl %1, %0" : "=m"(a) : "ri"(5)%L%)',
                '__asm__%V%("str %w1, %0" : "=m"(a) : "r"(5)%L%)',
                "a = 5",
            ),
        ]
    )
    text = (
        "@static int $f(int x, int y) {\n  int a = x, b = y;\n  @dress(x)\n#if defined __x86_64__\n  %ASM%;\n"
        "#elif defined __aarch64__\n  %ARM%;\n#else\n  %PLAIN%;\n#endif\n  return a * 100 + b;\n}\n"
        "void $use(void) { SAY(@via($f)(one, 7)); SAY($f(4, one)); }"
    )
    units = []
    for _ in range(rng.choice([2, 3])):
        holes = {
            "V": rng.choice(["", " volatile"]),
            "C": rng.choice(['"r"', '"ri"', '"rm"']),
            "L": rng.choice(["", ' : "cc"', ' : "memory", "cc"']),
            "R": rng.choice(["r", "m"]),
            "X": rng.choice(["", ' :: "memory"']),
            "E": rng.choice(["r", "&r"]),
        }
        units.append(Unit(fill(text, ASM=fill(x86, **holes), ARM=fill(arm, **holes), PLAIN=plain)))
    return Family("asm", units)


def asm_goto(rng: random.Random) -> Family:
    """Assembly that may jump to labels of C."""
    text = (
        "@static int $f(int x) {\n#if defined __x86_64__\n"
        '  __asm__ goto("testl %0, %0\\n\\tjne %l1" :: "r"(x) : "cc" : yes);\n'
        '#elif defined __aarch64__\n  __asm__ goto("cbnz %w0, %l1" :: "r"(x) : "cc" : yes);\n'
        "#else\n  if (x) goto yes;\n#endif\n  @dress(x)\n  return %K%;\nyes:\n  return 5 + x;\n}\n"
        "void $use(void) { SAY(@via($f)(one)); SAY($f(zero)); }"
    )
    return Family("asm goto", [Unit(fill(text, K=rng.choice([3, 3, 4]))) for _ in range(2)], attributes=False)


def jumps(rng: random.Random) -> Family:
    """setjmp and longjmp with volatile variables, in functions that differ in a constant or in nothing."""
    text = (
        "#include <setjmp.h>\nstatic jmp_buf $j;\nNOINLINE static void $leave(int x) { if (x) longjmp($j, x); }\n"
        "@static int $f(int x) {\n  volatile int n = 1;\n  @dress(x)\n  if (setjmp($j)) return n + %K%;\n"
        "  n = 5 + x;\n"
        "  $leave(x);\n  return n;\n}\nvoid $use(void) { SAY(@via($f)(one)); SAY($f(zero)); SAY($f(2)); }"
    )
    units = [Unit(fill(text, K=rng.choice([100, 100, 200]))) for _ in range(rng.choice([2, 3]))]
    return Family("setjmp", units, attributes=False)


def variadic(rng: random.Random) -> Family:
    """Functions with variable arguments of other types."""
    text = (
        "#include <stdarg.h>\n@static i64 $f(int n, ...) {\n  va_list ap;\n  i64 s = 0;\n  va_start(ap, n);\n"
        "  for (int i = 0; i < n; i++) { %T% v = va_arg(ap, %T%); s = s * 10 + (i64)v; }\n  va_end(ap);\n"
        "  @dress(n)\n  return s;\n}\n"
        "void $use(void) { SAY($f(3, (%T%)1, (%T%)2, (%T%)(3 * one))); SAY(@via($f)(1, (%T%)7)); SAY($f(0)); }"
    )
    types = rng.sample(["int", "long", "double", "unsigned", "i64", "ulong"], rng.choice([2, 3]))
    return Family("variadic", [Unit(fill(text, T=t)) for t in types], attributes=False)


def stacks(rng: random.Random) -> Family:
    """Arrays of a variable size, alloca, and large frames."""
    array = [
        "long *a = (long *)__builtin_alloca((ulong)n * sizeof(long));",
        "long *a = (long *)__builtin_alloca_with_align((ulong)n * sizeof(long), 512);",
        "long a[40];",
        "long a[40] __attribute__((aligned(64)));",
        "#ifdef __cplusplus\n  long a[9];\n#else\n  long a[n];\n#endif\n",
    ]
    text = (
        "@static long $f(int n) {\n  %A%\n  for (int i = 0; i < n; i++) a[i] = i * %K%;\n  @dress(n)\n"
        "  long s = 0;\n  for (int i = 0; i < n; i++) s += a[i];\n  return s;\n}\n"
        "@static long $g(int n) { long s = 0; for (int i = 1; i < n; i++) s += $f(i); return s; }\n"
        "void $use(void) { SAY($f(5 * one)); SAY(@via($g)(6)); }"
    )
    units = [Unit(fill(text, A=rng.choice(array), K=rng.choice([2, 2, 3]))) for _ in range(rng.choice([2, 3]))]
    return Family("stack", units)


def switches(rng: random.Random) -> Family:
    """Switches that become tables, and differ in one entry or in the default."""
    cases = [rng.randrange(50) for _ in range(rng.choice([4, 6, 9]))]
    units = []
    for _ in range(rng.choice([2, 3])):
        own = list(cases)
        if rng.random() < 0.6:
            own[rng.randrange(len(own))] += 1
        default = rng.choice(["-1", "-1", "x", "__builtin_trap(), 0"])
        body = "".join(f" case {i}: return {value};" for i, value in enumerate(own))
        text = (
            f"@static int $f(int x) {{ @dress(x) switch (x) {{{body} default: return {default}; }} }}\n"
            f"void $use(void) {{ for (int i = 0; i < {len(own)}; i++) SAY(@via($f)(i + zero)); }}"
        )
        units.append(Unit(text))
    return Family("switch", units)


def texts(rng: random.Random) -> Family:
    """Functions that use string literals or constant tables, which differ in their end or in nothing."""
    words = [rng.choice(["alpha", "alpha", "alphb", "pha", "beta"]) for _ in range(rng.choice([2, 3]))]
    text = rng.choice(
        [
            '@static int $f(int i) { const char *s = "%W%"; @dress(i) return s[i] + s[0] * 1000; }\n'
            "void $use(void) { SAY(@via($f)(one)); SAY($f(zero)); }",
            'static const char $w[] = "%W%";\n@static int $f(int i) { return $w[i] + (int)sizeof $w * 1000; }\n'
            "void $use(void) { SAY(@via($f)(one)); SAY($f(zero)); }",
            'static const char *const $names[] = {"%W%", "x%W%", 0};\n'
            "@static int $count(char c) { int n = 0; for (const char *const *p = $names; *p; p++) for (const "
            "char *q = *p; *q; q++)"
            " n += *q == c; @dress(c) return n; }\nvoid $use(void) { SAY(@via($count)('a')); SAY($count('b')); }",
            "static char $buffer[16] = \"%W%\";\n@static char *$f(int i) { $buffer[i] = '-'; return $buffer; }\n"
            "void $use(void) { SAY(@via($f)(one)[2]); SAY($f(zero)[1]); }",
            "@static const char *$f(void) { return __func__; }\n"
            '@static const char *$g(int i) { return i ? "%W%" : $f(); }\n'
            "void $use(void) { SAY(@via($g)(one)[1]); SAY($f()[0]); }",
        ]
    )
    return Family("texts", [Unit(fill(text, W=word)) for word in words])


def vectors(rng: random.Random) -> Family:
    """Vectors, complex numbers, and numbers of 128 bits, of other types in registers of one kind."""
    choices = [
        ("typedef %T% $V __attribute__((vector_size(16)));\n"
         "@static $V $f($V a, $V b) { @dress(1) return a * b + a; }\n"
         "void $use(void) { $V a = {1, 2}, b = {3, 4}; a[0] += (%T%)one; $V c = @via($f)(a, b); "
         "SAY((i64)c[0]); SAY((i64)c[1]); }",
         ["int", "unsigned", "float", "long", "double", "short", "ulong", "i64"]),
        ("@static %T% $f(%T% a, %T% b) { @dress(2) return (a ^ 5) / (b + 1) + (a >> 2); }\n"
         "void $use(void) { SAY((i64)@via($f)((%T%)-1000 * one, (%T%)6)); SAY((i64)$f((%T%)1 << 20, (%T%)one)); }",
         ["__int128", "unsigned __int128", "long", "ulong"]),
        ("@static %T% $f(%T% a, %T% b) { @dress(3) return a > b ? a - b : a + b; }\n"
         "void $use(void) { SAY((i64)@via($f)((%T%)10 * (%T%)one, (%T%)6)); SAY((i64)$f((%T%)2, (%T%)one)); }",
         ["long double", "double", "float", "_Float16", "long"]),
    ]  # fmt: skip
    text, types = rng.choice(choices)
    return Family("vector", [Unit(fill(text, T=t)) for t in rng.sample(types, rng.choice([2, 3]))], attributes=False)


KINDS = (
    thrown,
    thrown,
    cleanups,
    statics,
    thread_locals,
    assembly,
    assembly,
    asm_goto,
    jumps,
    variadic,
    stacks,
    switches,
    texts,
    vectors,
)
