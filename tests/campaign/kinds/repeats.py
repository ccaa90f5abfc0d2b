"""Functions with long sequences of statements in common, which an outliner and tail merging take out of them."""

from __future__ import annotations

import random

from tests.campaign.program import Family, Unit

STATEMENTS = (
    "a = b * 7 + c;",
    "b ^= a >> (c & 31);",
    "c = (a << 3) | (a >> 61);",
    "if (a & 1) b += c; else d -= b;",
    "d = d > b ? c : a;",
    "a = b / (c | 1); d ^= b % (c | 3);",
    "v[a & 7] = b; c += v[d & 7];",
    "v[b & 3] += v[c & 7] * 3;",
    "a += (ulong)step((long)(a & 255), (long)(b & 255), 3, 4);",
    "a += (ulong)VIA(step)((long)(a & 255), 1234567, 7654321, 4);",
    "step(1111111, 2222222, 3333333, 4444444); step(1111111, 2222222, 3333333, 5555555);",
    "d += $eight(a, b, c, d, 5, 6, 7, 8);",
    "x = (double)(long)(a & 1023) * 0.5 + 1; b += (ulong)x;",
    "y = x > 3 ? x : 7; x = y * 2; c += (ulong)y;",
    "s.m = b; s.k = (int)(c & 0xffff); t = s; d += t.m + (ulong)t.k;",
    "c += $byvalue(s);",
    "__atomic_fetch_add(&$counter, a & 3, __ATOMIC_SEQ_CST);",
    "$local += b; a ^= $local;",
    "__builtin_memcpy(w, v, sizeof w); d += w[a & 7];",
    "__builtin_memset(w, (int)(a & 3), sizeof w); b += w[2];",
    "KEEP(a); b += a;",
    "ADD(c, b); ADD(c, d);",
    "switch (a & 7) { case 0: b++; break; case 1: b += 5; break; case 2: c ^= b; break; case 3: d = 4; break;"
    " case 4: d += c; break; default: b ^= 1; }",
    "a = (ulong)(((unsigned __int128)a * b) >> 64) + 3;",
    "b += (ulong)__builtin_popcountl(a) + (ulong)__builtin_clzl(a | 1); c ^= __builtin_bswap64(a);",
    "d = (ulong)__builtin_add_overflow(a, b, &c);",
    "h = (unsigned short)(h * 3 + a); b ^= h;",
    "l = (long double)(a & 255) + 1; b += (ulong)l;",
    "{ volatile ulong spill = a; b += spill; }",
    "for (ulong i = 0; i < (a & 3) + 1; i++) { b += i * c; v[i] ^= b; }",
    "trace += a; trace ^= b; trace = trace * 3 + c;",
    "$global.m += a; $global.k ^= (int)(b & 0xff); c += $global.m;",
    "a ^= VIA($eight)(d, c, b, a, 1, 2, 3, 4);",
    "if (zero) return a;",
    "if ((a & 15) == 3) goto end;",
)
OF_CXX = (
    "try { $may_throw((int)(a & 3)); b++; } catch (int e) { b += (ulong)e; }",
    "{ $Guard g(&b); if (a & 1) $may_throw((int)(zero)); c += b; }",
    "try { $Guard g(&c); $may_throw((int)(b & 1)); } catch (int) { d++; } catch (...) { d += 5; }",
)
HEADER = """\
typedef struct { ulong m; int k; long rest[3]; } $S;
static ulong $counter;
static THREAD_LOCAL ulong $local = 3;
static $S $global;
static NOINLINE ulong $eight(ulong a, ulong b, ulong c, ulong d, ulong e, ulong f, ulong g, ulong h) {
  return a + b * 2 + c * 3 + d * 4 + e * 5 + f * 6 + g * 7 + h * 8;
}
static NOINLINE ulong $byvalue($S s) { s.m++; return s.m + (ulong)s.k; }
#if defined __x86_64__
#define ADD(x, y) __asm__("addq %1, %0" : "+r"(x) : "r"(y) : "cc")
#elif defined __aarch64__
#define ADD(x, y) __asm__("add %0, %0, %1" : "+r"(x) : "r"(y))
#else
#define ADD(x, y) x += y
#endif
#define KEEP(x) __asm__ volatile("" : "+r"(x))
"""
HEADER_OF_CXX = """\
namespace {
struct $Guard { ulong *p; $Guard(ulong *q) : p(q) { *p += 1; } ~$Guard() { *p ^= 5; } };
NOINLINE void $may_throw(int x) { if (x == 1) throw 7; if (x == 2) throw 4; step(x, 1, 2, 3); }
}
"""


def repeats(rng: random.Random, cxx: bool = False) -> Family:
    """Functions of random statements that share most of them, in other surroundings."""
    statements = [*STATEMENTS, *(OF_CXX * 3 if cxx else ())]
    core = rng.choices(statements, k=rng.choice([4, 8, 14]))
    units = []
    for _ in range(rng.choice([2, 3, 4])):
        body = []
        for _ in range(rng.choice([1, 1, 2])):
            own = list(core)
            if rng.random() < 0.4:
                own[rng.randrange(len(own))] = rng.choice(statements)
            own = [
                *rng.choices(statements, k=rng.choice([0, 0, 2])),
                *own,
                *rng.choices(statements, k=rng.choice([0, 1])),
            ]
            wrap = rng.choice(["%B%", "%B%", "if (a != 4) {\n%B%\n}", "for (int n = 0; n < 2; n++) {\n%B%\n}"])
            body.append(wrap.replace("%B%", "\n  ".join(own)))
        text = "\n  ".join(body)
        units.append(
            Unit(
                HEADER + (HEADER_OF_CXX if cxx else "") + "@static ulong $f(ulong a, ulong b) {\n"
                "  ulong c = a + 3, d = b ^ 9, v[8] = {1, 2, 3, 4, 5, 6, 7, a}, w[8] = {b};\n"
                "  double x = 1, y = 2;\n  long double l = 3;\n  unsigned short h = 5;\n"
                "  $S s = {a, 4, {1, 2, 3}}, t = s;\n"
                f"  {text}\nend:\n  trace += (ulong)x + (ulong)y + (ulong)l + h + t.m;\n"
                "  return a + b * 3 + c * 5 + d * 7 + v[a & 7] + w[b & 7] + $counter;\n}\n"
                + "void $use(void) { SAY((i64)@via($f)((ulong)one, 3)); SAY((i64)$f(77, (ulong)one)); }\n"
                "#undef ADD\n#undef KEEP\n"
            )
        )
    return Family("repeats", units, "cc" if cxx else None)


def repeats_in_cxx(rng: random.Random) -> Family:
    """The same with exceptions and destructors."""
    return repeats(rng, cxx=True)


KINDS = (repeats, repeats_in_cxx)
