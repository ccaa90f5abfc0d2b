"""Equal functions that are told apart by their addresses, and functions that name themselves or one another."""

from __future__ import annotations

import random

from tests.campaign.program import Family, Unit, fill


def self_address(rng: random.Random) -> Family:
    """Functions that compare, store, return or pass their own address."""
    text = rng.choice(
        [
            "@static i64 $is(void *next) { @dress(1) return next == (void *)$is ? 10 : 1; }\n"
            "void $use(void) { i64 (*volatile f)(void *) = $is; SAY(f((void *)f)); SAY(f((void *)0)); }",
            "static void *$seen;\n@static void $tick(int n) { @dress(n) if (n > 0) $seen = (void *)$tick; }\n"
            "void $use(void) { void (*volatile f)(int) = $tick; f(one); SAY($seen == (void *)f); }",
            "typedef void *(*$F)(int);\n"
            "@static void *$next(int n) { @dress(n) return n ? (void *)$next : (void *)0; }\n"
            "void $use(void) { $F volatile f = $next; SAY(f(one) == (void *)f); SAY(f(zero) == 0); }",
            "typedef struct $node { i64 (*run)(struct $node *); } $N;\n"
            "@static i64 $go($N *n) { @dress(2) return n->run == $go ? 5 : 6; }\n"
            "void $use(void) { $N n = {$go}; i64 (*volatile f)($N *) = $go; SAY(f(&n)); n.run = 0; SAY(f(&n)); }",
            "@static i64 $t(int k) {\n  static i64 (*const table[2])(int) = {$t, 0};\n  @dress(k)\n"
            "  return k > 1 ? table[0](k - 1) + (table[0] == VIA($t)) : 3;\n}\n"
            "void $use(void) { i64 (*volatile f)(int) = $t; SAY(f(4)); }",
            "static void *$q[4]; static int $n;\n"
            "static NOINLINE void $schedule(void *f) { if ($n < 4) $q[$n++] = f; }\n"
            "@static void $tick(int n) { @dress(n) if (n > 0) $schedule((void *)$tick); }\n"
            "void $use(void) {\n  void (*volatile f)(int) = $tick;\n  int found = 0;\n  f(one); f(zero); f(one);\n"
            "  for (int i = 0; i < $n; i++) found += $q[i] == (void *)f;\n  SAY(found);\n}",
            "@static i64 $rec(int n, void *me) { @dress(n)"
            " return n ? $rec(n - 1, (void *)$rec) + (me == (void *)$rec) : 0; }\n"
            "void $use(void) { i64 (*volatile f)(int, void *) = $rec; SAY(f(3, (void *)f)); }",
        ]
    )
    return Family("self", [Unit(text) for _ in range(rng.choice([2, 2, 3]))], identity=True)


def registry(rng: random.Random) -> Family:
    """One registry of the program in which equal functions put themselves, and from which they are removed."""
    header = (
        '#ifdef __cplusplus\nextern "C" {\n#endif\n'
        "extern void (*$$slots[16])(int); extern int $$count;\n"
        "#ifdef __cplusplus\n}\n#endif\n"
    )
    owner = (
        '#ifdef __cplusplus\nextern "C" {\n#endif\nvoid (*$$slots[16])(int); int $$count;\n'
        "#ifdef __cplusplus\n}\n#endif\n"
    )
    body = rng.choice(
        [
            "@dress(x) if (x > 0) $add($once);",
            "@dress(x) static int calls; if (++calls < 3) $add($once);",
            "@dress(x) for (int i = 0; i < x; i++) $add($once);",
        ]
    )
    text = (
        "static NOINLINE void $add(void (*f)(int)) { $$slots[$$count++ & 15] = f; }\n"
        "static NOINLINE int $remove(void (*f)(int)) {\n"
        "  int n = 0;\n  for (int i = 0; i < 16; i++) if ($$slots[i] == f) { $$slots[i] = 0; n++; }\n"
        "  return n;\n}\n"
        f"@static void $once(int x) {{ {body} }}\n"
        "void $use(void) { void (*volatile f)(int) = $once; f(one); SAY($remove(f)); f(one); f(zero); }"
    )
    count = rng.choice([2, 3])
    return Family(
        "registry", [Unit((owner if i == 0 else "") + text) for i in range(count)], header=header, identity=True
    )


def recursion(rng: random.Random) -> Family:
    """Recursion by a function itself, through a pair, or through a pair of other functions."""
    base = rng.choice(["1", "n + 1", "step(n, 1, 2, 3)"])
    shape = rng.choice(["self", "pair", "cross", "pointer", "inner"])
    texts = {
        "self": "@static i64 $f(int n) { @dress(n) return n > 0 ? @via($f)(n - 1) * 3 + %K% : %B%; }\n"
        "void $use(void) { SAY($f(one + 3)); }",
        "pair": "@static i64 $g(int n);\n@static i64 $f(int n) { return n > 0 ? $g(n - 1) * 3 + %K% : %B%; }\n"
        "@static i64 $g(int n) { return n > 0 ? $f(n - 1) * 3 + %K% : %B%; }\n"
        "void $use(void) { SAY(@via($f)(one + 3)); SAY(@via($g)(4)); }",
        "cross": "@static i64 $g(int n);\n@static i64 $f(int n) { return n > 0 ? $f(n - 1) * 3 + $g(n - 2) : n "
        "+ 1; }\n"
        "@static i64 $g(int n) { return n > 0 ? $f(n - 1) * 3 + $g(n - 2) : %K%; }\n"
        "void $use(void) { SAY(@via($f)(one + 3)); SAY(@via($g)(4)); }",
        "pointer": "@static i64 $f(int n, i64 (*next)(int, void *)) {"
        " return n > 0 ? next(n - 1, (void *)next) + (next == (i64 (*)(int, void *))$f) : %K%; }\n"
        "static i64 $stop(int n, void *next) { (void)next; return n * 100; }\n"
        "void $use(void) { SAY(@via($f)(one + 3, $stop)); }",
        "inner": "@static i64 $leaf(int n) { return n * %K%; }\n"
        "@static i64 $f(int n) { @dress(n) return n > 0 ? $leaf(n) + $f(n - 1) : $leaf(7); }\n"
        "void $use(void) { SAY(@via($f)(one + 3)); }",
    }
    units = []
    same = rng.random() < 0.5
    for index in range(rng.choice([2, 3])):
        text = fill(texts[shape], K=2 if same else 2 + index, B=base)
        if rng.random() < 0.4:
            # The functions of a pair in the other order of the file.
            text = text.replace("@static i64 $g(int n);\n@static i64 $f", "@static i64 $g(int n);\n@static i64 $f")
        units.append(Unit(text))
    return Family("recursion", units, identity=shape == "pointer", attributes=False)


def distinct(rng: random.Random) -> Family:
    """Equal functions whose addresses are all different, counted by the last unit."""
    count = rng.choice([3, 4])
    header = (
        '#ifdef __cplusplus\nextern "C" {\n#endif\nextern void *$$known[8]; extern int $$number;\n'
        "#ifdef __cplusplus\n}\n#endif\n"
    )
    owner = '#ifdef __cplusplus\nextern "C" {\n#endif\nvoid *$$known[8]; int $$number;\n#ifdef __cplusplus\n}\n#endif\n'
    body = rng.choice(
        ["return x * 7 + 1;", "@dress(x) return x;", "step(x, 1, 2, 3); return x;", "return x > 0 ? 4 : 5;"]
    )
    text = (
        f"@static int $f(int x) {{ {body} }}\n"
        "void $use(void) {\n  int (*volatile f)(int) = $f;\n  int same = 0;\n  SAY(f(one));\n"
        "  for (int i = 0; i < $$number; i++) same += $$known[i] == (void *)f;\n"
        "  if (!same && $$number < 8) $$known[$$number++] = (void *)f;\n  SAY(same);\n}"
    )
    units = [Unit((owner if i == 0 else "") + text) for i in range(count)]
    return Family("distinct", units, header=header, identity=True)


def tables(rng: random.Random) -> Family:
    """Tables of functions, and comparisons with the functions of the table."""
    text = rng.choice(
        [
            "@static int $a(int x) { return x * %K%; }\n@static int $b(int x) { return x * %K%; }\n"
            "static int (*$table[3])(int) = {$a, $b, $a};\n"
            "@static int $which(int (*f)(int)) { @dress(1) return f == $a ? 1 : f == $b ? 2 : 3; }\n"
            "void $use(void) { for (int i = 0; i < 3; i++) SAY($which($table[i + zero]) * 10 + $table[i + "
            "zero](i)); }",
            "@static int $a(void) { return %K%; }\n@static int $b(void) { return %K%; }\n"
            "@static int $pick(int i) { return i ? ($a == (i > 1 ? VIA($a) : VIA($b))) : 9; }\n"
            "void $use(void) { for (int i = 0; i < 3; i++) SAY($pick(i + zero)); }",
            "@static int $a(const void *x, const void *y) { return *(const int *)x - *(const int *)y; }\n"
            "@static int $b(const void *x, const void *y) { return *(const int *)y - *(const int *)x; }\n"
            "@static void $sort(int *a, int n, int (*less)(const void *, const void *)) {\n"
            "  @dress(n)\n  for (int i = 0; i < n; i++) for (int j = 0; j + 1 < n; j++) if (less(a + j, a + j "
            "+ 1) > 0)"
            " { int t = a[j]; a[j] = a[j + 1]; a[j + 1] = t; }\n}\n"
            "void $use(void) { int a[4] = {3, one, 7, 5}; $sort(a, 4, %K% & 1 ? $a : $b); SAY(a[0] * 10 + a[3]); }",
        ]
    )
    return Family(
        "tables", [Unit(fill(text, K=rng.choice([3, 3, 4]))) for _ in range(rng.choice([2, 3]))], identity=True
    )


def labels(rng: random.Random) -> Family:
    """Addresses of labels of the function itself, in tables and in variables."""
    text = rng.choice(
        [
            "@static i64 $run(const char *p) {\n  static void *const table[3] = {&&add, &&twice, &&stop};\n"
            "  i64 x = one;\n  goto *table[(int)*p++ - '0'];\nadd: x += %K%; goto *table[(int)*p++ - '0'];\n"
            "twice: x *= 2; goto *table[(int)*p++ - '0'];\nstop: return x;\n}\n"
            'void $use(void) { SAY($run("0110102")); }',
            "@static i64 $run(int n) {\n  void *to = n > 2 ? &&big : &&small;\n  @dress(n)\n  goto *to;\n"
            "big: return %K% + n;\nsmall: return n;\n}\n"
            "void $use(void) { SAY($run(one)); SAY($run(one + 4)); }",
            "@static i64 $run(int n) {\n  static const int offsets[2] = {0, 1};\n"
            "  static void *const t[2] = {&&a, &&b};\n"
            "  goto *t[offsets[n & 1]];\na: return step(n, %K%, 1, 2);\nb: return step(n, 2, %K%, 1);\n}\n"
            "void $use(void) { SAY($run(one)); SAY($run(zero)); }",
        ]
    )
    same = rng.random() < 0.5
    units = [Unit(fill(text, K=3 if same else 3 + i)) for i in range(rng.choice([2, 3]))]
    return Family("labels", units, attributes=False)


def exit_functions(rng: random.Random) -> Family:
    """Equal functions registered for the end of the program or run before main."""
    text = rng.choice(
        [
            "static int $n;\n__attribute__((constructor)) static void $before(void) { $n += %K%; }\n"
            "void $use(void) { SAY($n); }",
            "static int $n;\n__attribute__((constructor(%P%))) @static void $before(void) { $n += %K%; @dress(1) }\n"
            "void $use(void) { SAY($n); @via($before)(); SAY($n); }",
            'extern\n#ifdef __cplusplus\n"C"\n#endif\nint atexit(void (*)(void));\n'
            "static void $last(void) { SAY(%K%); }\n"
            "void $use(void) { static int done; if (!done++) SAY(atexit($last)); }",
            "__attribute__((destructor(%P%))) static void $last(void) { SAY(%K%); }\nvoid $use(void) { SAY(1); }",
        ]
    )
    same = rng.random() < 0.6
    # One priority each, so that the order of what they print is known.
    units = [Unit(fill(text, K=2 if same else 2 + i, P=rng.randrange(200, 60000))) for i in range(rng.choice([2, 3]))]
    return Family("exit", units, together=True)


KINDS = (self_address, self_address, registry, recursion, recursion, distinct, tables, labels, exit_functions)
