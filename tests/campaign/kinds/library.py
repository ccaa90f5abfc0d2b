"""Programs that define functions of the C library themselves, as freestanding ones and those with an allocator do."""

from __future__ import annotations

import random

from tests.campaign.kinds.linkage import CLOSE, OPEN
from tests.campaign.program import Family, Unit

MEMORY = (
    "void *memcpy(void *to, const void *from, ulong n) {\n"
    "  unsigned char *t = (unsigned char *)to; const unsigned char *f = (const unsigned char *)from;\n"
    "  while (n--) *t++ = *f++;\n  return to;\n}\n",
    "void *memset(void *to, int c, ulong n) {\n"
    "  unsigned char *t = (unsigned char *)to;\n  for (ulong i = 0; i < n; i++) t[i] = (unsigned char)c;\n"
    "  return to;\n}\n",
    "void *memmove(void *to, const void *from, ulong n) {\n"
    "  unsigned char *t = (unsigned char *)to; const unsigned char *f = (const unsigned char *)from;\n"
    "  if (t < f) while (n--) *t++ = *f++;\n  else while (n--) t[n] = f[n];\n  return to;\n}\n",
    "int memcmp(const void *a, const void *b, ulong n) {\n"
    "  const unsigned char *p = (const unsigned char *)a, *q = (const unsigned char *)b;\n"
    "  for (; n--; p++, q++) if (*p != *q) return *p < *q ? -1 : 1;\n  return 0;\n}\n",
    "ulong strlen(const char *s) { const char *e = s; while (*e) e++; return (ulong)(e - s); }\n",
)


def own_memory(rng: random.Random) -> Family:
    """The program's own memcpy, memset and others, and functions whose copies and loops become calls of them."""
    flag = rng.choice(["-ffreestanding", "-fno-builtin"])
    functions = "".join(rng.sample(MEMORY, rng.choice([2, 4, 5])))
    declarations = (
        OPEN + "void *memcpy(void *, const void *, ulong);\nvoid *memset(void *, int, ulong);\n"
        "void *memmove(void *, const void *, ulong);\nint memcmp(const void *, const void *, ulong);\n"
        "ulong strlen(const char *);\n" + CLOSE
    )
    text = (
        declarations + "typedef struct { long a[40]; } $S;\nstatic $S $s, $t;\n"
        "@static void $copy($S *to, const $S *from) { @dress(1) *to = *from; }\n"
        "@static void $clear(long *p, int n) { for (int i = 0; i < n; i++) p[i] = 0; }\n"
        "@static long $same(const $S *a, const $S *b) { return memcmp(a, b, sizeof *a) == 0; }\n"
        "@static long $length(const char *s) { long n = 0; while (s[n]) n++; return n + (long)strlen(s); }\n"
        "void $use(void) {\n  for (int i = 0; i < 40; i++) $s.a[i] = i * one;\n  @via($copy)(&$t, &$s);\n"
        "  SAY($t.a[39]); SAY($same(&$s, &$t));\n  $clear($t.a, 30 * one);\n  SAY($t.a[3] + $t.a[35]);\n"
        "  memmove($t.a + 31, $t.a + 30, 8 * sizeof(long)); SAY($t.a[35]);\n"
        '  memset($t.a, 1, 8 * sizeof(long)); SAY($t.a[7] == 0x0101010101010101L);\n  SAY(@via($length)("four"));\n}'
    )
    owner = Unit(declarations + OPEN + functions + CLOSE + "void $use(void) { SAY(1); }", (flag,))
    count = rng.choice([1, 2])
    return Family("memory", [owner, *(Unit(text) for _ in range(count))], "c", together=True, apart=True, single=True)


def own_allocator(rng: random.Random) -> Family:
    """The program's own malloc and calloc, and allocations that are filled."""
    owner = (
        "static char $arena[1 << 20] __attribute__((aligned(16)));\nstatic ulong $used;\n"
        + OPEN
        + "void *malloc(ulong n) { ulong at = $used; $used += (n + 31) & ~15UL; if ($used > sizeof $arena) return 0;"
        " *(ulong *)(void *)($arena + at) = n; return $arena + at + 16; }\n"
        "void *calloc(ulong a, ulong b) { char *p = (char *)malloc(a * b); if (p) for (ulong i = 0; i < a * b; "
        "i++) p[i] = 0;"
        " return p; }\n"
        "void free(void *p) { if (p && ((char *)p < $arena || (char *)p >= $arena + sizeof $arena)) "
        "__builtin_trap(); }\n"
        "void *realloc(void *p, ulong n) { char *q = (char *)malloc(n); ulong old = p ? *(ulong *)(void "
        "*)((char *)p - 16) : 0;"
        " for (ulong i = 0; q && i < old && i < n; i++) q[i] = ((char *)p)[i]; return q; }\n"
        "void *aligned_alloc(ulong a, ulong n) { (void)a; return malloc(n); }\n" + CLOSE + "void $use(void) { "
        "SAY(1); }"
    )
    text = (
        "#include <stdlib.h>\n#include <string.h>\n"
        "typedef struct $node { long key; char text[200]; struct $node *next; } $N;\n"
        "@static $N *$make(long key) {\n  $N *n = ($N *)malloc(sizeof *n);\n  if (!n) return 0;\n"
        "  memset(n, 0, sizeof *n);\n  @dress(key)\n  n->key = key;\n  return n;\n}\n"
        "@static char *$text(ulong n) { char *s = (char *)malloc(n + 1); if (!s) abort(); for (ulong i = 0; i "
        "< n; i++) s[i] = 'a';"
        " s[n] = 0; return s; }\n"
        "void $use(void) {\n  $N *a = $make(one), *b = @via($make)(2);\n  a->next = b;\n"
        "  SAY(a->key * 10 + a->next->key + a->text[100]);\n"
        "  char *s = $text(5); s = (char *)realloc(s, 40); SAY((i64)strlen(s));\n"
        "  int *c = (int *)calloc(4, sizeof *c); SAY(c[3]); free(c); free(s); free(b); free(a);\n}"
    )
    count = rng.choice([1, 2, 3])
    flag = rng.choice([("-fno-builtin",), (), ()])
    units = [Unit(owner, ("-fno-builtin",)), *(Unit(text, flag) for _ in range(count))]
    return Family("allocator", units, "c", together=True, single=True)


def calls(rng: random.Random) -> Family:
    """Calls of library functions that become other calls: printf, strcpy, strchr, memchr, abs, sprintf, qsort."""
    bodies = rng.sample(
        [
            'char b[32]; return sprintf(b, "%s", x > 1 ? "abc" : "de") + b[0];',
            'char b[32] = "xyz"; strcat(b, "abc"); return (int)strlen(b) + b[x];',
            "char b[32]; strcpy(b, \"hello\"); return (int)(strchr(b, 'l') - b) + x;",
            'return (int)(strrchr("a/b/c", \'/\') != 0) + (int)strspn("aab", "a") * x;',
            'return memcmp("abcd", x > 0 ? "abce" : "abcd", 4) < 0;',
            "return abs(-x) + (int)labs((long)x * -3);",
            'return strcmp("a", x > 5 ? "b" : "a") == 0 ? 4 : 5;',
            'char b[8]; snprintf(b, sizeof b, "%d", x * 1000); return b[0] + (int)strlen(b);',
            'return (int)strtol(x > 0 ? "12" : "13", 0, 10) + atoi("5");',
            'char b[16]; memset(b, 0, sizeof b); strncpy(b, "abcdef", 3); return b[2] + b[3] + x;',
            'return (int)strnlen("abcdef", (size_t)x + 2) + (int)strcspn("abc", "c");',
            'char b[16] = "abcabc"; return (int)((char *)memchr(b, \'c\', 6) - b) + (strstr(b, "ca") ? x : 0);',
        ],
        rng.choice([2, 3]),
    )
    units = [
        Unit(
            "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"
            f"@static int $f(int x) {{ @dress(x) {body} }}\nvoid $use(void) {{ SAY(@via($f)(one)); SAY($f(2)); }}"
        )
        for body in bodies
    ]
    return Family("calls", units)


KINDS = (own_memory, own_allocator, calls)
