"""Functions that several files define or declare: weak, hidden, alias, resolved, inline, of one name."""

from __future__ import annotations

import random

from tests.campaign.program import Family, Language, Unit, fill

OPEN = '#ifdef __cplusplus\nextern "C" {\n#endif\n'
CLOSE = "#ifdef __cplusplus\n}\n#endif\n"


def overridden(rng: random.Random) -> Family:
    """Weak functions of which some have a strong definition in another file, next to equal strong ones."""
    names = ["$$a", "$$b", "$$c"]
    header = OPEN + "".join(f"int {name}(int x);\n" for name in names) + CLOSE
    body = rng.choice(["return x * 5 + 1;", "step(x, 1, 2, 3); return x;", "@dress(x) return x + 3;"])
    hidden = rng.choice(["", ', visibility("hidden")'])
    weak = OPEN + "".join(f"__attribute__((weak{hidden})) int {name}(int x) {{ {body} }}\n" for name in names) + CLOSE
    strong = names[rng.randrange(3)]
    other = rng.choice([body, "return x * 7;"])
    units = [
        Unit(weak + "void $use(void) { " + " ".join(f"SAY({name}(one));" for name in names) + " }"),
        Unit(f"{OPEN}int {strong}(int x) {{ {other} }}\n{CLOSE}@static int $e(int x) {{ {body} }}\n"
             f"void $use(void) {{ SAY({strong}(2)); SAY(@via($e)(2)); }}"),
        Unit("@static int $all(int x) { " + "".join(f"x = {name}(x); " for name in names) + "return x; }\n"
             "void $use(void) { SAY(@via($all)(one)); }"),
    ]  # fmt: skip
    return Family("weak", units, header=header, together=True, apart=True)


def absent(rng: random.Random) -> Family:
    """Weak declarations, with and without a definition."""
    header = f"{OPEN}__attribute__((weak)) int $$there(int); __attribute__((weak)) int $$absent(int);\n{CLOSE}"
    units = [
        Unit(
            f"@static int $f(int x) {{ @dress(x) return {name} ? {name}(x) : 5; }}\n"
            f"void $use(void) {{ SAY(@via($f)(one)); }}"
        )
        for name in ("$$there", "$$absent")
    ]
    units.append(Unit(f"{OPEN}int $$there(int x) {{ return x * 9; }}\n{CLOSE}void $use(void) {{ SAY(1); }}"))
    return Family("absent", units, header=header, together=True, apart=rng.random() < 0.5)


def aliases(rng: random.Random) -> Family:
    """Aliases of equal functions, strong, weak and of static ones, called and compared."""
    body = rng.choice(["return x * 5 + 1;", "step(x, 1, 2, 3); return x;", "@dress(x) return x + 3;"])
    weak = rng.choice(["", "weak, ", 'visibility("hidden"), '])
    static = rng.choice(["", "static "]) if not weak else ""
    text = (
        f"{OPEN}{static}int $real(int x);\n{static}NOINLINE int $real(int x) {{ {body} }}\n"
        f'int $other(int x) __attribute__(({weak}alias("$real")));\n{CLOSE}'
        "void $use(void) { SAY($other(one)); SAY(@via($real)(2)); SAY(VIA($other) == VIA($real)); }"
    )
    count = rng.choice([2, 3])
    language: Language | None = "c" if static else None
    units = [Unit(text) for _ in range(count)]
    return Family("alias", units, language, identity=True, together=True, attributes=False, external=True)


def resolved(rng: random.Random) -> Family:
    """Functions that resolvers choose at the start, from equal functions."""
    text = (
        f"{OPEN}static int $a(int x) {{ @dress(x) return x * 3; }}\n"
        f"static int $b(int x) {{ @dress(x) return x * %K%; }}\n"
        "typedef int (*$F)(int);\n"
        "#if defined __x86_64__ && defined __clang__\n"
        "#define $PLAIN __attribute__((no_stack_protector, no_instrument_function))\n"
        "#else\n#define $PLAIN\n#endif\n"
        "$PLAIN static $F $resolve(void) { return %P%; }\n"
        f'int $chosen(int x) __attribute__((ifunc("$resolve")));\n{CLOSE}'
        "void $use(void) { SAY($chosen(one)); SAY(@via($chosen)(4)); SAY($a(1) + $b(2)); }"
    )
    units = [Unit(fill(text, K=rng.choice([3, 3, 4]), P=rng.choice(["$a", "$b"]))) for _ in range(rng.choice([2, 3]))]
    return Family("ifunc", units, "c", together=True, attributes=False, exact=True, external=True)


def inline_definitions(rng: random.Random) -> Family:
    """Inline functions that several files define and that are compiled with other flags in each."""
    header = rng.choice(
        [
            "static inline int $$get(const int *p, int n) { int s = 0; for (int i = 0; i < n; i++) s += p[i]; "
            "return s; }\n"
            "static inline int $$put(int *p, int x) { *p = x; return x + 1; }\n",
            "#ifdef __cplusplus\ninline\n#else\nstatic\n#endif\n"
            "int $$get(const int *p, int n) { int s = 0; for (int i = 0; i < n; i++) s += p[i]; return s; }\n"
            "#ifdef __cplusplus\ninline\n#else\nstatic\n#endif\n"
            "int $$put(int *p, int x) { static int k; *p = x; return x + ++k; }\n",
        ]
    )
    text = (
        "@static int $f(int x) { int a[4] = {1, 2, x, 4}; int r = $$put(a, x); @dress(x) return $$get(a, 4) * "
        "10 + r; }\n"
        "void $use(void) { SAY(@via($f)(one)); SAY($f(5)); }"
    )
    return Family("inline", [Unit(text) for _ in range(rng.choice([2, 3]))], "cc", header=header, together=True)


def same_names(rng: random.Random) -> Family:
    """Static functions and variables of one name and other content in different files."""
    bodies = rng.sample(
        ["return x * 3;", "return x + 3;", "return x * 3 + %V%;", "step(x, 1, 2, 3); return x;", "return %V%++ + x;"], 3
    )
    units = [
        Unit(
            fill(
                f"static int $$value = {rng.choice([3, 3, 4])};\n"
                f"static NOINLINE int $$work(int x) {{ @dress(x) {body} }}\n"
                f"void $use(void) {{ SAY($$work(one)); SAY(@via($$work)(5)); SAY($$value); }}",
                V="$$value",
            )
        )
        for body in bodies
    ]
    return Family("names", units, apart=True, attributes=False)


def labelled(rng: random.Random) -> Family:
    """Functions whose symbols have a name of their own, and declarations that call them by it."""
    text = (
        f'{OPEN}int $f(int x) __asm__("$renamed");\nint $f(int x) {{ @dress(x) return x * %K%; }}\n'
        f'int $g(int x) __asm__("$renamed");\n{CLOSE}void $use(void) {{ SAY($f(one)); SAY(@via($f)(2)); }}'
    )
    units = [Unit(fill(text, K=rng.choice([3, 3, 4]))) for _ in range(rng.choice([2, 3]))]
    return Family("labels of symbols", units, together=True, attributes=False, external=True)


def sections(rng: random.Random) -> Family:
    """Entries that functions of several files put into a section, which one file walks."""
    header = (
        f"{OPEN}typedef struct {{ int (*run)(int); int id; }} $$entry;\n"
        f"extern const $$entry __start_$$set[], __stop_$$set[];\n{CLOSE}"
    )
    keep = "used, retain"
    text = (
        "@static int $run(int x) { @dress(x) return x * %K%; }\n"
        f'__attribute__(({keep}, section("$$set"))) static const $$entry $e = {{$run, %K%}};\n'
        "void $use(void) { SAY(@via($run)(one)); }"
    )
    walk = (
        "void $use(void) {\n  int n = 0, s = 0;\n  for (const $$entry *e = __start_$$set; e < __stop_$$set; e++)"
        " { n++; s += e->run(2) * e->id; }\n  SAY(n); SAY(s);\n}"
    )
    count = rng.choice([2, 3])
    # The order of the entries is the linker's, so the functions leave no trace.
    text = text.replace("@dress(x) ", "")
    units = [Unit(fill(text, K=rng.choice([3, 3, 4]))) for _ in range(count)]
    return Family("section", [*units, Unit(walk)], header=header, together=True, attributes=False)


def constants(rng: random.Random) -> Family:
    """Constants of equal content whose addresses differ, and functions that return them."""
    text = rng.choice(
        [
            "static const int $table[4] = {1, 2, 3, %K%};\n"
            "@static const int *$get(int i) { @dress(i) return &$table[i]; }\n"
            "void $use(void) { SAY(*@via($get)(3 * one)); SAY($get(zero) == $table); }",
            "static int $state = %K%;\n@static int *$get(void) { return &$state; }\n"
            "void $use(void) { ++*$get(); SAY(*@via($get)()); SAY($get() == &$state); }",
            "typedef struct { int (*f)(int); const char *name; } $Op;\n@static int $twice(int x) { return 2 * x; }\n"
            "@static int $more(int x) { return x + %K%; }\n"
            'static const $Op $ops[] = {{$twice, "twice"}, {$more, "more"}};\n'
            "@static int $run(int i, int x) { @dress(i) return $ops[i].f(x) + $ops[i].name[0]; }\n"
            "void $use(void) { SAY(@via($run)(zero, 4)); SAY($run(one, 4)); }",
        ]
    )
    return Family("constants", [Unit(fill(text, K=rng.choice([4, 4, 5]))) for _ in range(rng.choice([2, 3]))])


def signatures(rng: random.Random) -> Family:
    """Functions of other prototypes and one code: pointers and integers, unused parameters, narrow results."""
    texts = rng.sample(
        [
            "@static %R% $f(long x) { @dress(x) return (%R%)x; }\n"
            "void $use(void) { SAY((i64)@via($f)(300 * one)); SAY((i64)$f(-1)); }",
            "@static i64 $f(%R% x) { return x; }\n"
            "void $use(void) { SAY(@via($f)((%R%)(300 * one))); SAY($f((%R%)-1)); }",
            "@static int $f(int x, %R% unused) { (void)unused; return x * 3; }\n"
            "void $use(void) { SAY(@via($f)(one, (%R%)1)); }",
            "@static const void *$f(%R% *p) { return p; }\n"
            "void $use(void) { static %R% v; SAY(@via($f)(&v) == (void *)&v); }",
        ],
        1,
    )
    types = rng.sample(
        ["signed char", "unsigned char", "short", "unsigned short", "int", "unsigned", "long", "ulong"], 3
    )
    return Family("signature", [Unit(fill(texts[0], R=t)) for t in types])


KINDS = (
    overridden,
    absent,
    aliases,
    resolved,
    inline_definitions,
    same_names,
    labelled,
    sections,
    constants,
    signatures,
)
