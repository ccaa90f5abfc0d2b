"""C++: instances of templates, members, lambdas, virtual functions, guards of static locals, the standard library."""

from __future__ import annotations

import random

from tests.campaign.program import Family, Unit, fill


def templates(rng: random.Random) -> Family:
    """Instances of one template for types with one layout; files share the template or have one each."""
    attribute = rng.choice(["", "NOINLINE "])
    inner = rng.choice(["", "NOINLINE "])
    setter = rng.choice(
        [
            ("template <class T, class V> %I%void $$set(T *p, V v) { p->v = v; }", "$$set(q, (V)%A%);"),
            ("template <class T> %I%void $$set(T *p, const T &f) { *p = f; }", "{ T f{}; f.v = (V)%A%; "
                                                                               "$$set(q, f); }"),
            ("template <class T> %I%void $$set(T &p, T &f) { T t = p; p = f; f = t; }", "{ T f{}; f.v = "
                                                                                        "(V)%A%; $$set(*q, f); }"),
            ("template <class T, class V> %I%void $$set(T *p, int n, V v) { for (int i = 0; i < n; ++i) p[i].v "
             "= v; }",
             "$$set(q, one, (V)%A%);"),
            ("template <class T> struct $$Set { T *p; template <class V> %I%$$Set &operator=(V v) { p->v = v; "
             "return *this; } };",
             "{ $$Set<T> s{q}; s = (V)%A%; }"),
            ("template <class T, class F> %I%void $$set(T *p, F f) { f(p); }", "$$set(q, [](T *r) { r->v = "
                                                                               "(V)%A%; });"),
        ]
    )  # fmt: skip
    header = (
        fill(setter[0], I=inner)
        + "\n"
        + fill(
            "template <class T> %O%i64 $$twice(T *p, T *q) { typedef decltype(p->v) V; p->v = (V)1; %C% return "
            "(i64)p->v; }\n",
            O=attribute,
            C=fill(setter[1], A=2),
        )
    )
    group = rng.choice([["long", "i64", "ulong"], ["int", "unsigned", "$E"], ["long", "double"]])
    header += "".join(
        f"enum $$E{i} : int {{}}; struct $$S{i} {{ {value.replace('$E', f'$$E{i}')} v; }};\n"
        for i, value in enumerate(group * 2)
    )
    units = []
    for _ in range(rng.choice([2, 3, 4])):
        index = rng.randrange(len(group) * 2)
        units.append(
            Unit(
                f"static $$S{index} $a[2];\n"
                f"void $use(void) {{ SAY($$twice(&$a[zero], &$a[0])); SAY($$twice(&$a[0], &$a[one])); }}"
            )
        )
    return Family("template", units, "cc", header=header)


def template_identity(rng: random.Random) -> Family:
    """Instances of a template that have identities: own static variables, addresses, registrations."""
    header = rng.choice(
        [
            "template <class T> struct $$H { static int once(int x) { static int n; @dress n += x; return n; } };\n",
            "template <class T> struct $$H { static int count; static int once(int x) { return count += x; } };\n"
            "template <class T> int $$H<T>::count = 3;\n",
            "template <class T> struct $$H { static int once(int x) { static int (*self)(int) = &once; return "
            "self == &once ? x : -x; } };\n",
            "template <class T> struct $$H { static int once(int x) { return x + (int)sizeof(T); } };\n",
            "template <class T> struct $$H { static void *seen; static int once(int x) { seen = (void *)&once; "
            "return x; } };\n"
            "template <class T> void *$$H<T>::seen;\n",
        ]
    ).replace("@dress ", rng.choice(["", "step(x, 1, 2, 3); "]))
    header += "struct $$A; struct $$B;\n"
    types = rng.choice([["int", "unsigned", "float"], ["long", "i64", "ulong"]])
    seen = " SAY($$H<%T%>::seen == (void *)f);" if "seen" in header else ""
    units = [
        Unit(
            fill(
                "void $use(void) { int (*volatile f)(int) = &$$H<%T%>::once; SAY(f(one)); SAY($$H<%T%>::once(2));"
                + seen
                + rng.choice(["", f" SAY(f == &$$H<{types[0]}>::once);"])
                + " }",
                T=t,
            )
        )
        for t in rng.choices(types, k=rng.choice([2, 3]))
    ]
    return Family("instance", units, "cc", header=header, identity=True)


def members(rng: random.Random) -> Family:
    """Member functions of classes with one layout: accessors, constructors, destructors, operators."""
    body = rng.choice(
        [
            "V v; %N%void set(V x) { v = x; } %N%V get() const { return v; }",
            "V v; %N%void set(V x) { v = x; trace++; } V get() const { return v; }",
            "V pad; V v; %N%$C &set(V x) { this->v = x; return *this; } V get() const { return v; }",
            "union { V v; char c[8]; }; %N%void set(V x) { v = x; } %N%V get() const { return v; }",
        ]
    )
    body = fill(body, N=rng.choice(["", "NOINLINE "]))
    space = rng.choice([("", ""), ("namespace {\n", "\n}"), ("namespace $n {\n", "\n}\nusing namespace $n;")])
    group = rng.choice([["long", "i64", "ulong"], ["int", "unsigned"], ["double"]])
    units = [
        Unit(
            f"{space[0]}struct $C {{ typedef {rng.choice(group)} V; {body} }};{space[1]}\n"
            "@static i64 $twice($C *p, $C *q, int x) { p->set(1); q->set(($C::V)x); return (i64)p->get(); }\n"
            "static $C $a[2];\nvoid $use(void) { SAY(@via($twice)(&$a[zero], &$a[0], 5)); SAY($twice(&$a[0], "
            "&$a[one], 6)); }"
        )
        for _ in range(rng.choice([2, 3]))
    ]
    return Family("members", units, "cc")


def constructors(rng: random.Random) -> Family:
    """Classes whose constructors and destructors are equal but for a constant, a member or a base."""
    text = rng.choice(
        [
            "namespace { struct $D { int k; NOINLINE $D(int x) : k(x) { @dress(x) } NOINLINE ~$D() { trace += "
            "(ulong)k; say(@label, k + %K%); } }; }\n"
            "@static int $f(int x) { $D a(x), b(x + %K%); return a.k * 10 + b.k; }\n"
            "void $use(void) { SAY(@via($f)(one)); SAY($f(2)); }",
            "namespace { struct $B { int k; $B() : k(%K%) {} virtual ~$B() { say(@label, k); } virtual int "
            "id() { return 1; } };\n"
            "struct $D : $B { int m; $D() : m(id()) {} ~$D() override { say(@label, m * 10 + id()); } int id() "
            "override { return 2; } }; }\n"
            "void $use(void) { $B *p = one ? new $D : new $B; SAY(p->id()); delete p; }",
            "namespace { struct $V { int k = %K%; virtual int at() const { return k; } virtual ~$V() {} };\n"
            "struct $L : virtual $V { int at() const override { return k + 1; } };\n"
            "struct $R : virtual $V { int r = 4; };\n"
            "struct $X : $L, $R { int at() const override { return $L::at() * 10 + r; } }; }\n"
            "@static int $f(const $V &v) { @dress(1) return v.at(); }\n"
            "void $use(void) { $X x; $L l; SAY(@via($f)(x)); SAY($f(l)); }",
        ]
    )
    return Family("constructor", [Unit(fill(text, K=rng.choice([3, 3, 4]))) for _ in range(rng.choice([2, 3]))], "cc")


def virtuals(rng: random.Random) -> Family:
    """Classes of one shape: virtual calls, casts, names of types, pointers to members."""
    text = rng.choice(
        [
            "namespace { struct $B { virtual int f(int x) { return x + %K%; } virtual int g(int x) { return x "
            "* 3; } virtual ~$B() {} };\n"
            "struct $D : $B { int f(int x) override { return x - 1; } int g(int x) override { return $B::g(x) "
            "+ 1; } }; }\n"
            "@static int $run($B *b, int x) { @dress(x) return b->f(x) * 100 + b->g(x); }\n"
            "void $use(void) { $B b; $D d; SAY(@via($run)(one ? &d : &b, one)); SAY($run(zero ? &d : &b, 2)); }",
            "#include <typeinfo>\nnamespace { struct $B { virtual ~$B() {} }; struct $D : $B { int v = %K%; }; "
            "struct $E : $B { int v = 9; }; }\n"
            "@static int $which($B *b) { @dress(1) if ($D *d = dynamic_cast<$D *>(b)) return d->v; if (auto *e "
            "= dynamic_cast<$E *>(b)) return e->v;"
            " return typeid(*b) == typeid($B) ? 1 : 2; }\n"
            "void $use(void) { $B b; $D d; $E e; SAY(@via($which)(one ? &d : &b)); SAY($which(&e)); "
            "SAY($which(&b)); }",
            "namespace { struct $P { int a, b; int f(int x) { return a + x; } int g(int x) { return a + x; } "
            "virtual int h(int x) { return b * x + %K%; } }; }\n"
            "@static int $call($P &p, int ($P::*m)(int), int x) { @dress(x) return (p.*m)(x) + (m == &$P::f ? "
            "100 : 0); }\n"
            "void $use(void) { $P p; p.a = 3; p.b = 4; SAY(@via($call)(p, one ? &$P::f : &$P::g, 1)); "
            "SAY($call(p, zero ? &$P::f : &$P::g, 2));"
            " SAY($call(p, &$P::h, 3)); }",
            "namespace { struct $A { virtual int a() { return 1; } long x = 5; }; struct $B { virtual int b() "
            "{ return %K%; } long y = 6; };\n"
            "struct $C : $A, $B { int a() override { return 3; } int b() override { return (int)(x + y); } }; }\n"
            "@static int $viab($B *b) { @dress(2) return b->b() + (int)b->y; }\n"
            "@static int $viaa($A *a) { @dress(2) return a->a() + (int)a->x; }\n"
            "void $use(void) { $C c; $B b; SAY(@via($viab)(&c)); SAY($viab(&b)); SAY($viaa(&c)); }",
        ]
    )
    identity = "m == &$P::f" in text
    units = [Unit(fill(text, K=rng.choice([3, 3, 4]))) for _ in range(rng.choice([2, 3]))]
    return Family("virtual", units, "cc", identity=identity)


def lambdas(rng: random.Random) -> Family:
    """Lambdas of one body: with captures of other types, with own static variables, converted to pointers."""
    text = rng.choice(
        [
            "@static int $f(int x) { auto l = [](int y) { static int n = %K%; return n += y; }; @dress(x) "
            "return l(x) * 10 + l(1); }\n"
            "void $use(void) { SAY(@via($f)(one)); SAY($f(2)); }",
            "@static int $f(int x) { int (*p)(int) = [](int y) { return y * %K%; }; int (*q)(int) = [](int y) "
            "{ return y * %K%; };"
            " @dress(x) return p(x) + q(x) + (p == q ? 1000 : 0); }\n"
            "void $use(void) { SAY(@via($f)(one)); SAY($f(2)); }",
            "@static i64 $f(%T% *p, %T% *q) { auto set = [](%T% *r, %T% v) { *r = v; }; *p = 1; set(q, 2); "
            "return (i64)*p; }\n"
            "static %T% $a[2];\nvoid $use(void) { SAY(@via($f)(&$a[zero], &$a[0])); }",
            "template <class F> NOINLINE static int $apply(F f, int x) { return f(x) + f(x + 1); }\n"
            "@static int $f(int x) { %T% c = (%T%)x; return $apply([&c](int y) { c += (%T%)y; return (int)c; }, x) +"
            " $apply([c](int y) { return (int)c * y; }, x); }\nvoid $use(void) { SAY(@via($f)(one)); SAY($f(2)); }",
        ]
    )
    types = rng.choice([["long", "i64", "ulong"], ["int", "unsigned", "float"]])
    units = [
        Unit(fill(text, K=rng.choice([3, 3, 4]), T=rng.choice(types)).replace("$apply([&c]", "$apply([&c]"))
        for _ in range(rng.choice([2, 3]))
    ]
    return Family("lambda", units, "cc", identity="p == q" in text)


def guarded(rng: random.Random) -> Family:
    """Static local variables with guards, initialized once by equal code, and destroyed in order."""
    text = rng.choice(
        [
            "static int $calls;\nNOINLINE static int $make(int x) { $calls++; return x * %K%; }\n"
            "@static int $get(int x) { static int v = $make(x); @dress(x) return v += x; }\n"
            "void $use(void) { SAY(@via($get)(one)); SAY($get(2)); SAY($calls); }",
            "namespace { struct $G { int k; $G(int x) : k(x) { step(x, 1, 2, 3); } ~$G() { say(@label, k); } }; }\n"
            "@static $G &$get(int x) { static $G g(x + %K%); @dress(x) return g; }\n"
            "void $use(void) { SAY(@via($get)(one).k); SAY($get(2).k++); }",
            "static int $tries;\n@static int $get(int x) { static int v = [](int y) { if ($tries++ == 0) throw "
            "y; return y + %K%; }(x); return v; }\n"
            "void $use(void) { for (int i = 1; i < 4; i++) try { SAY($get(i)); } catch (int e) { SAY(100 + e); } }",
            "@static int $get(int x) { static thread_local int v = (int)step(x, %K%, 2, 3) & 7; @dress(x) "
            "return v += x; }\n"
            "void $use(void) { SAY(@via($get)(one)); SAY($get(2)); }",
        ]
    )
    units = [Unit(fill(text, K=rng.choice([3, 3, 4]))) for _ in range(rng.choice([2, 3]))]
    return Family("guard", units, "cc", together="~$G" in text, attributes=False)


def standard(rng: random.Random) -> Family:
    """Algorithms and containers of the standard library for types with one representation."""
    include, text = rng.choice(
        [
            (
                "#include <algorithm>\n",
                "@static i64 $f(%T% *a, int n) { a[n] = (%T%)1; std::fill(a, a + n + 1, (%T%)2); @dress(n) "
                "return (i64)a[n]; }\n"
                "void $use(void) { static %T% a[4]; SAY(@via($f)(a, one)); }",
            ),
            (
                "#include <algorithm>\n",
                "@static i64 $f(%T% *a, int n) { std::sort(a, a + n); std::reverse(a, a + n); return "
                "(i64)(a[0] * (%T%)10 + a[1]); }\n"
                "void $use(void) { %T% a[4] = {(%T%)3, (%T%)one, (%T%)7, (%T%)5}; SAY(@via($f)(a, 4)); }",
            ),
            (
                "#include <vector>\n",
                "@static i64 $f(int n) { std::vector<%T%> v; for (int i = 0; i < n; i++) v.push_back((%T%)i); "
                "v[1] = (%T%)1;"
                " v.insert(v.begin() + 1, (%T%)9); v.assign((ulong)n, v[1]); return (i64)v[2] + (i64)v.size(); }\n"
                "void $use(void) { SAY(@via($f)(one + 4)); }",
            ),
            (
                "#include <map>\n#include <string>\n",
                "@static i64 $f(int n) { std::map<std::string, %T%> m; for (int i = 0; i < n; i++) "
                "m[std::to_string(i % 3)] += (%T%)i;"
                ' return (i64)m["0"] * 100 + (i64)m["2"]; }\nvoid $use(void) { SAY(@via($f)(one * 7)); }',
            ),
            (
                "#include <functional>\n#include <memory>\n",
                "@static i64 $f(int x) { auto p = std::make_shared<%T%>((%T%)x); std::function<%T%(%T%)> g = "
                "[p](%T% y) { return (%T%)(*p += y); };"
                " g((%T%)2); return (i64)g((%T%)3); }\nvoid $use(void) { SAY(@via($f)(one)); }",
            ),
        ]
    )
    types = rng.choice([["long", "i64", "ulong"], ["int", "unsigned"], ["long", "double"]])
    units = [Unit(include + fill(text, T=rng.choice(types))) for _ in range(rng.choice([2, 3]))]
    return Family("standard", units, "cc")


def coroutines(rng: random.Random) -> Family:
    """Coroutines of one shape, whose files run their passes when they are compiled, next to functions."""
    header = (
        "#include <coroutine>\nstruct $$Gen {\n  struct promise_type {\n    int now;\n"
        "    $$Gen get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }\n"
        "    std::suspend_always initial_suspend() { return {}; }\n"
        "    std::suspend_always final_suspend() noexcept { return {}; }\n"
        "    std::suspend_always yield_value(int v) { now = v; return {}; }\n"
        "    void return_void() {}\n    void unhandled_exception() { throw; }\n  };\n"
        "  std::coroutine_handle<promise_type> h;\n"
        "  int next() { h.resume(); return h.done() ? -1 : h.promise().now; }\n};\n"
    )
    body = rng.choice(
        [
            "for (int i = 0; i < n; i++) co_yield i * %K%;",
            "co_yield n; @dress(n) co_yield n + %K%;",
            "int a = n, b = %K%; while (a < 50) { co_yield a; int t = a + b; b = a; a = t; }",
        ]
    )
    text = (
        f"@static $$Gen $gen(int n) {{ {body} }}\n@static int $sum(int n) {{ auto g = $gen(n); int s = 0, v;"
        " while ((v = g.next()) >= 0 && s < 500) s = s * 2 + v; g.h.destroy(); return s; }\n"
        "void $use(void) { SAY(@via($sum)(one + 2)); SAY($sum(2)); }"
    )
    units = [Unit(fill(text, K=rng.choice([3, 3, 4])), ("-std=c++20",)) for _ in range(rng.choice([2, 3]))]
    return Family("coroutine", units, "cc", header=header, attributes=False)


KINDS = (
    templates,
    templates,
    template_identity,
    members,
    constructors,
    virtuals,
    lambdas,
    guarded,
    standard,
    coroutines,
)
