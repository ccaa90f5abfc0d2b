"""Library functions that LLVM calls in place of others, how to make it do so, and a small C library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

TYPES = """\
typedef unsigned long size_t;
typedef __builtin_va_list va_list;
typedef struct file FILE;
void put(char), put_number(long);
extern FILE *out;
"""

LIBRARY = {
    "memcpy": "void *memcpy(void *to, const void *from, size_t n) "
    "{ char *t = to; const char *f = from; while (n--) *t++ = *f++; return to; }",
    "memmove": "void *memmove(void *to, const void *from, size_t n) { char *t = to; const char *f = from;"
    " if (t < f) while (n--) *t++ = *f++; else while (n--) t[n] = f[n]; return to; }",
    "memset": "void *memset(void *to, int c, size_t n) { char *t = to; while (n--) *t++ = c; return to; }",
    "mempcpy": "void *mempcpy(void *to, const void *from, size_t n) "
    "{ char *t = to; const char *f = from; while (n--) *t++ = *f++; return t; }",
    "memccpy": "void *memccpy(void *to, const void *from, int c, size_t n) { char *t = to; const char *f = from;"
    " while (n--) if ((*t++ = *f++) == (char)c) return t; return 0; }",
    "memcmp": "int memcmp(const void *a, const void *b, size_t n) { const unsigned char *x = a, *y = b;"
    " for (; n--; ++x, ++y) if (*x != *y) return *x - *y; return 0; }",
    "bcmp": "int bcmp(const void *a, const void *b, size_t n) { const char *x = a, *y = b;"
    " for (; n--; ++x, ++y) if (*x != *y) return 1; return 0; }",
    "memchr": "void *memchr(const void *p, int c, size_t n) "
    "{ for (const char *s = p; n--; ++s) if (*s == (char)c) return (void *)s; return 0; }",
    "memrchr": "void *memrchr(const void *p, int c, size_t n) "
    "{ for (const char *s = p; n--;) if (s[n] == (char)c) return (void *)(s + n); return 0; }",
    "strlen": "size_t strlen(const char *s) { size_t n = 0; while (s[n]) ++n; return n; }",
    "strchr": "char *strchr(const char *s, int c) "
    "{ for (;; ++s) { if (*s == (char)c) return (char *)s; if (!*s) return 0; } }",
    "strrchr": "char *strrchr(const char *s, int c) "
    "{ char *r = 0; for (;; ++s) { if (*s == (char)c) r = (char *)s; if (!*s) return r; } }",
    "strcmp": "int strcmp(const char *a, const char *b) "
    "{ while (*a && *a == *b) ++a, ++b; return (unsigned char)*a - (unsigned char)*b; }",
    "strncmp": "int strncmp(const char *a, const char *b, size_t n) "
    "{ for (; n--; ++a, ++b) if (*a != *b || !*a) return (unsigned char)*a - (unsigned char)*b; return 0; }",
    "strstr": "char *strstr(const char *s, const char *t) { for (;; ++s) { size_t i = 0;"
    " while (t[i] && s[i] == t[i]) ++i; if (!t[i]) return (char *)s; if (!*s) return 0; } }",
    "strpbrk": "char *strpbrk(const char *s, const char *set) "
    "{ for (; *s; ++s) for (const char *t = set; *t; ++t) if (*s == *t) return (char *)s; return 0; }",
    "strcspn": "size_t strcspn(const char *s, const char *set) { size_t n = 0;"
    " for (; s[n]; ++n) for (const char *t = set; *t; ++t) if (s[n] == *t) return n; return n; }",
    "strcpy": "char *strcpy(char *to, const char *s) { char *t = to; while ((*t++ = *s++)) ; return to; }",
    "stpcpy": "char *stpcpy(char *to, const char *s) { while ((*to = *s++)) ++to; return to; }",
    "strncpy": "char *strncpy(char *to, const char *s, size_t n) "
    "{ for (size_t i = 0; i < n; ++i) { to[i] = *s; if (*s) ++s; } return to; }",
    "stpncpy": "char *stpncpy(char *to, const char *s, size_t n) { char *end = to + n; int found = 0;"
    " for (size_t i = 0; i < n; ++i) { to[i] = *s; if (*s) ++s; else if (!found) found = 1, end = to + i; }"
    " return end; }",
    "strcat": "char *strcat(char *to, const char *s) "
    "{ char *t = to; while (*t) ++t; while ((*t++ = *s++)) ; return to; }",
    "strncat": "char *strncat(char *to, const char *s, size_t n) "
    "{ char *t = to; while (*t) ++t; while (n-- && *s) *t++ = *s++; *t = 0; return to; }",
    "strlcpy": "size_t strlcpy(char *to, const char *s, size_t n) { size_t i = 0;"
    " for (; s[i]; ++i) if (i + 1 < n) to[i] = s[i]; if (n) to[i < n ? i : n - 1] = 0; return i; }",
    "strlcat": "size_t strlcat(char *to, const char *s, size_t n) { size_t i = 0, j = 0; while (i < n && to[i]) ++i;"
    " for (; s[j]; ++j) if (i + j + 1 < n) to[i + j] = s[j]; if (i < n) to[i + j < n ? i + j : n - 1] = 0;"
    " return i + j; }",
    "malloc": "static char malloc_arena[4096]; static size_t malloc_used; void *malloc(size_t n) {"
    " char *p = malloc_arena + malloc_used; malloc_used += (n + 15) & -16ul;"
    " for (size_t i = 0; i < n; ++i) p[i] = 7; return p; }",
    "calloc": "static char calloc_arena[4096]; static size_t calloc_used; void *calloc(size_t m, size_t n) "
    "{ char *p = calloc_arena + calloc_used; calloc_used += (m * n + 15) & -16ul; return p; }",
    "realloc": "static char realloc_arena[4096]; "
    "void *realloc(void *p, size_t n) { return p ? p : realloc_arena + n % 8; }",
    "strdup": "static char strdup_arena[64]; char *strdup(const char *s) "
    "{ size_t i = 0; do strdup_arena[i] = s[i]; while (s[i++]); return strdup_arena; }",
    "strndup": "static char strndup_arena[64]; char *strndup(const char *s, size_t n) "
    "{ size_t i = 0; for (; i < n && s[i]; ++i) strndup_arena[i] = s[i]; strndup_arena[i] = 0; return strndup_arena; }",
    "putchar": "int putchar(int c) { put(c); return c; }",
    "puts": "int puts(const char *s) { while (*s) put(*s++); put('\\n'); return 1; }",
    "fputc": "int fputc(int c, FILE *f) { put(c); return c; }",
    "fputs": "int fputs(const char *s, FILE *f) { while (*s) put(*s++); return 1; }",
    "fwrite": "size_t fwrite(const void *p, size_t m, size_t n, FILE *f) "
    "{ for (size_t i = 0; i < m * n; ++i) put(((const char *)p)[i]); return n; }",
    "vfprintf": "int vfprintf(FILE *f, const char *s, va_list a) { for (; *s; ++s) if (*s != '%') put(*s);"
    " else if (*++s == 's') for (const char *t = __builtin_va_arg(a, char *); *t; ++t) put(*t);"
    " else put(__builtin_va_arg(a, int)); return 1; }",
    "printf": "int vfprintf(FILE *, const char *, va_list); int printf(const char *s, ...) "
    "{ va_list a; __builtin_va_start(a, s); vfprintf(0, s, a); return 1; }",
    "fprintf": "int vfprintf(FILE *, const char *, va_list); int fprintf(FILE *f, const char *s, ...) "
    "{ va_list a; __builtin_va_start(a, s); vfprintf(f, s, a); return 1; }",
    "vsnprintf": "int vsnprintf(char *to, size_t n, const char *s, va_list a) { size_t i = 0;"
    " for (; *s; ++s) if (*s != '%') to[i++] = *s; else if (*++s == 's')"
    " for (const char *t = __builtin_va_arg(a, char *); *t; ++t) to[i++] = *t; else to[i++] = __builtin_va_arg(a, int);"
    " to[i] = 0; return i; }",
    "vsprintf": "int vsnprintf(char *, size_t, const char *, va_list); "
    "int vsprintf(char *to, const char *s, va_list a) { return vsnprintf(to, -1, s, a); }",
    "snprintf": "int vsnprintf(char *, size_t, const char *, va_list); "
    "int snprintf(char *to, size_t n, const char *s, ...) "
    "{ va_list a; __builtin_va_start(a, s); return vsnprintf(to, n, s, a); }",
    "sprintf": "int vsnprintf(char *, size_t, const char *, va_list); int sprintf(char *to, const char *s, ...) "
    "{ va_list a; __builtin_va_start(a, s); return vsnprintf(to, -1, s, a); }",
}
"""Function -> its definition. Each can be left out: it calls only functions that LLVM does not introduce for it."""

_CHECKED = {
    "memcpy": "void *{}(void *to, const void *from, size_t n, size_t {})",
    "mempcpy": "void *{}(void *to, const void *from, size_t n, size_t {})",
    "memccpy": "void *{}(void *to, const void *from, int c, size_t n, size_t {})",
    "strcpy": "char *{}(char *to, const char *s, size_t {})",
    "stpcpy": "char *{}(char *to, const char *s, size_t {})",
    "strncpy": "char *{}(char *to, const char *s, size_t n, size_t {})",
    "stpncpy": "char *{}(char *to, const char *s, size_t n, size_t {})",
    "strcat": "char *{}(char *to, const char *s, size_t {})",
    "strncat": "char *{}(char *to, const char *s, size_t n, size_t {})",
    "strlcpy": "size_t {}(char *to, const char *s, size_t n, size_t {})",
    "strlcat": "size_t {}(char *to, const char *s, size_t n, size_t {})",
}
"""Function -> the signature of its checked form."""
for _name, _signature in _CHECKED.items():
    _body = LIBRARY[_name].replace(f"{_name}(", f"__{_name}_chk(", 1)
    _body = _body[: _body.index(")")] + ", size_t room" + _body[_body.index(")") :]
    LIBRARY[f"__{_name}_chk"] = _body
LIBRARY["__strlen_chk"] = (
    "size_t __strlen_chk(const char *s, size_t room) { size_t n = 0; while (s[n]) ++n; return n; }"
)
_VARIADIC = "{ va_list a; __builtin_va_start(a, s); return vsnprintf(to, -1, s, a); }"
_FORMAT = "int vsnprintf(char *, size_t, const char *, va_list); "
LIBRARY["__sprintf_chk"] = f"{_FORMAT}int __sprintf_chk(char *to, int f, size_t room, const char *s, ...) {_VARIADIC}"
LIBRARY["__snprintf_chk"] = (
    f"{_FORMAT}int __snprintf_chk(char *to, size_t n, int f, size_t room, const char *s, ...) {_VARIADIC}"
)
LIBRARY["__vsprintf_chk"] = (
    f"{_FORMAT}int __vsprintf_chk(char *to, int f, size_t room, const char *s, va_list a) "
    "{ return vsnprintf(to, -1, s, a); }"
)
LIBRARY["__vsnprintf_chk"] = (
    LIBRARY["vsnprintf"]
    .replace("vsnprintf", "__vsnprintf_chk", 1)
    .replace("size_t n,", "size_t n, int f, size_t room,", 1)
)
_SUFFIXES = {"": "double", "f": "float", "l": "long double"}
for _suffix, _type in _SUFFIXES.items():  # results that fit the rows' arguments
    LIBRARY[f"exp2{_suffix}"] = (
        f"{_type} exp2{_suffix}({_type} x) {{ {_type} r = 1; for (; x >= 1; --x) r *= 2; return r; }}"
    )
    LIBRARY[f"exp10{_suffix}"] = (
        f"{_type} exp10{_suffix}({_type} x) {{ {_type} r = 1; for (; x >= 1; --x) r *= 10; return r; }}"
    )
    LIBRARY[f"ldexp{_suffix}"] = f"{_type} ldexp{_suffix}({_type} x, int n) {{ for (; n > 0; --n) x *= 2; return x; }}"
    LIBRARY[f"sqrt{_suffix}"] = (
        f"{_type} sqrt{_suffix}({_type} x) {{ {_type} r = 0; while ((r + 1) * (r + 1) <= x) ++r; return r; }}"
    )
    LIBRARY[f"pow{_suffix}"] = (
        f"{_type} pow{_suffix}({_type} x, {_type} y) {{ {_type} r = 1;"
        " if (y == (float)0.5) { r = 0; while ((r + 1) * (r + 1) <= x) ++r; return r; }"
        " for (; y >= 1; --y) r *= x; return r; }"
    )
    LIBRARY[f"sin{_suffix}"] = f"{_type} sin{_suffix}({_type} x) {{ return 6 * x; }}"
    LIBRARY[f"cos{_suffix}"] = f"{_type} cos{_suffix}({_type} x) {{ return 2 * x; }}"
    LIBRARY[f"sincos{_suffix}"] = (  # code generation makes it of intrinsics, as by stock tools
        f"void sincos{_suffix}({_type} x, {_type} *s, {_type} *c) {{ *s = 6 * x; *c = 2 * x; }}"
    )
    LIBRARY[f"tan{_suffix}"] = f"{_type} tan{_suffix}({_type} x) {{ return 3; }}"
_UNARY_NAMES = """
acos acosh asin asinh atan atanh cbrt ceil cosh exp expm1 fabs floor log log10 log1p log2 logb nearbyint rint round
roundeven sinh tanh trunc
"""
_UNARY = _UNARY_NAMES.split()
for _name in _UNARY:
    LIBRARY[_name] = f"double {_name}(double x) {{ return 2 * x + 1; }}"
    LIBRARY[f"{_name}f"] = f"float {_name}f(float x) {{ return 2 * x + 1; }}"


@dataclass(frozen=True)
class Row:
    """A call that LLVM replaces by one of another function.

    Attributes:
        introduced: the other function.
        declarations: of the functions that `body` calls.
        body: of a function with a result of type long. LLVM does not know that `n` is 3, `text` "abcab", and `buffer`
            64 bytes of 0.
        flags: more options of the compile.
        linker: more options of the link.
    """

    introduced: str
    declarations: str
    body: str
    flags: tuple[str, ...] = ()
    linker: tuple[str, ...] = ()

    def source(self) -> str:
        return (
            f"{TYPES}extern long n; extern char text[], buffer[64];\n{self.declarations}\n"
            f"long {self.function}(void) {{ {self.body} }}\n"
        )

    @property
    def function(self) -> str:
        return f"row_{self.introduced}"


_SHOW = "for (int i = 0; i < 12; ++i) put(buffer[i] ? buffer[i] : '.');"


def _checked(name: str, arguments: str, shows: bool = True) -> Row:
    """Return the row of a function that replaces its checked form."""
    signature = _CHECKED[name].format(f"__{name}_chk", "room")
    call = f"__{name}_chk({arguments}, -1ul)"
    return Row(name, f"{signature};", f"long r = (long){call}; {_SHOW if shows else ''} return r - (long)buffer;")


_SHRINK = ("-Wl,-mllvm,-enable-double-float-shrink",)
ROWS = [
    Row("putchar", "int printf(const char *, ...);", 'printf("x"); return 0;'),
    Row("puts", "int printf(const char *, ...);", 'printf("two words\\n"); printf("%s\\n", text); return 0;'),
    Row("fputc", "int fprintf(FILE *, const char *, ...);", 'fprintf(out, "%c", (int)(n + 70)); return 0;'),
    Row("fputs", "int fprintf(FILE *, const char *, ...);", 'fprintf(out, "%s", text); return 0;'),
    Row("fwrite", "int fprintf(FILE *, const char *, ...);", 'fprintf(out, "words"); return 0;'),
    Row("malloc", "void *realloc(void *, size_t);", "char *volatile p = realloc(0, 5); *p = n; return *p;"),
    Row(
        "calloc",
        "void *malloc(size_t); void *memset(void *, int, size_t);",
        "char *volatile kept; char *p = malloc(200); memset(p, 0, 200); kept = p; return kept[n] + kept[199];",
    ),
    Row("bcmp", "int memcmp(const void *, const void *, size_t);", "return memcmp(text, text + n, n + 1) == 0;"),
    Row(
        "memcmp",
        "int strcmp(const char *, const char *);",
        f'return strcmp(n > 2 ? "{"a" * 70}" : "{"b" * 70}", "{"a" * 69}b") < 0;',
    ),
    Row("memchr", "char *strchr(const char *, int);", 'return strchr("aeioubcd", (int)n + 95) != 0;'),
    Row(
        "memrchr", "char *strrchr(const char *, int);", 'const char *s = "abcabc"; return strrchr(s, (int)n + 95) - s;'
    ),
    Row("strchr", "char *strpbrk(const char *, const char *);", 'return strpbrk(text, "b") - text;'),
    Row("strlen", "char *strchr(const char *, int);", "return strchr(text, 0) - text;"),
    Row("strncmp", "char *strstr(const char *, const char *);", "return strstr(text, buffer) == text;"),
    Row("strcpy", "int sprintf(char *, const char *, ...);", f'sprintf(buffer, "%s", text); {_SHOW} return 0;'),
    Row("stpcpy", "int sprintf(char *, const char *, ...);", 'return sprintf(buffer, "%s", text);'),
    Row("strdup", "char *strndup(const char *, size_t);", 'return strndup("abcd", 9)[n];'),
    Row(
        "memcpy", "", f"char *t = buffer + 7; long k = n, i = 0; do t[i] = text[i]; while (++i != k); {_SHOW} return 0;"
    ),
    Row(
        "memmove",
        "",
        f"char *t = buffer; long k = 30 + n, i = 0; do t[i] = t[i + 1]; while (++i != k); {_SHOW} return 0;",
    ),
    Row("memset", "", f"long k = n, i = 0; do buffer[i] = 'z'; while (++i != k); {_SHOW} return 0;"),
    Row(
        "__memcpy_chk",
        "char *__strcpy_chk(char *, const char *, size_t);",
        f'__strcpy_chk(buffer, "abcdefgh", n + 20); {_SHOW} return 0;',
    ),
    _checked("mempcpy", "buffer, text, n"),
    _checked("memccpy", "buffer, text, 'c', n"),
    _checked("strncpy", "buffer, text, n + 4"),
    _checked("stpncpy", "buffer, text, n + 4"),
    _checked("strcat", "buffer, text"),
    _checked("strncat", "buffer, text, n"),
    Row(
        "strlcpy",
        "size_t __strlcpy_chk(char *, const char *, size_t, size_t);",
        f"long r = __strlcpy_chk(buffer, text, n, -1ul); {_SHOW} return r;",
    ),
    Row(
        "strlcat",
        "size_t __strlcat_chk(char *, const char *, size_t, size_t);",
        f"long r = __strlcat_chk(buffer, text, n + 4, -1ul); {_SHOW} return r;",
    ),
    Row(
        "sprintf",
        "int __sprintf_chk(char *, int, size_t, const char *, ...);",
        f'__sprintf_chk(buffer, 0, -1ul, "<%s %c>", text, (int)n + 65); {_SHOW} return 0;',
    ),
    Row(
        "snprintf",
        "int __snprintf_chk(char *, size_t, int, size_t, const char *, ...);",
        f'__snprintf_chk(buffer, 50, 0, -1ul, "<%s %c>", text, (int)n + 65); {_SHOW} return 0;',
    ),
    Row(
        "vsprintf",
        "int __vsprintf_chk(char *, int, size_t, const char *, va_list);\n"
        "static int print_vsprintf(const char *s, ...) "
        "{ va_list a; __builtin_va_start(a, s); return __vsprintf_chk(buffer, 0, -1ul, s, a); }",
        f'print_vsprintf("<%s>", text); {_SHOW} return 0;',
    ),
    Row(
        "vsnprintf",
        "int __vsnprintf_chk(char *, size_t, int, size_t, const char *, va_list);\n"
        "static int print_vsnprintf(const char *s, ...) "
        "{ va_list a; __builtin_va_start(a, s); return __vsnprintf_chk(buffer, 50, 0, -1ul, s, a); }",
        f'print_vsnprintf("<%s>", text); {_SHOW} return 0;',
    ),
]
for _suffix, _type in _SUFFIXES.items():
    _pow = f"{_type} pow{_suffix}({_type}, {_type});"
    ROWS += [
        Row(f"exp2{_suffix}", _pow, f"{_type} x = n + ({_type})0.5; return pow{_suffix}(2, x);", ("-fmath-errno",)),
        Row(f"sqrt{_suffix}", _pow, f"return pow{_suffix}((int)n * 27, ({_type})0.5);", ("-fmath-errno",)),
        Row(f"ldexp{_suffix}", _pow, f"return pow{_suffix}(2, (int)n);", ("-fmath-errno",)),
        Row(
            f"tan{_suffix}",
            f"{_type} sin{_suffix}({_type}), cos{_suffix}({_type});",
            f"{_type} x = n; return sin{_suffix}(x) / cos{_suffix}(x);",
            ("-ffast-math",),
        ),
    ]
for _name in sorted(
    {*_UNARY, "cos", "exp10", "exp2", "sin", "sqrt", "tan"}
    - {"ceil", "fabs", "floor", "nearbyint", "rint", "round", "roundeven", "trunc", "exp2", "exp10", "sqrt", "tan"}
):
    ROWS.append(
        Row(
            f"{_name}f",
            f"double {_name}(double);",
            f"float x = n + 2; return (float){_name}(x);",
            ("-fmath-errno",),
            _SHRINK,
        )
    )
ROWS.append(
    Row(
        "powf",
        "double pow(double, double);",
        "float x = n + 2, y = n; return (float)pow(x, y);",
        ("-fmath-errno",),
        _SHRINK,
    )
)


RUNTIME = (
    TYPES
    + r"""
long n = 3;
char text[64] = "abcab", buffer[64];
struct file { int x; } file;
FILE *out = &file;
void put(char c) {
  long r;
  __asm__ volatile("syscall" : "=a"(r) : "a"(1), "D"(1L), "S"(&c), "d"(1L) : "rcx", "r11", "memory");
}
void put_number(long v) {
  if (v < 0) { put('-'); v = -v; }
  if (v > 9) put_number(v / 10);
  put('0' + v % 10);
}
void run(void);
void begin(void) {
  run();
  __asm__ volatile("syscall" :: "a"(60), "D"(0L));
  __builtin_unreachable();
}
__asm__(".globl _start\n_start:\n xor %ebp,%ebp\n and $-16,%rsp\n call begin\n");
"""
)
"""Where a program without a C library begins; calls `run`, which calls rows."""


def runner(functions: Sequence[str]) -> str:
    """Return the definition of `run`: it prints what each row's function prints and returns."""
    calls = "".join(
        f"  for (int i = 0; i < 64; ++i) buffer[i] = 0;\n  put_number({function}()); put('\\n');\n"
        for function in functions
    )
    declared = "".join(f"long {function}(void);\n" for function in functions)
    return f"{TYPES}extern char buffer[];\n{declared}void run(void) {{\n{calls}}}\n"


_OTHER_TARGETS = """
__cospi __cospif __exp10_finite __exp10f_finite __exp10l_finite __sincospi_stret __sincospif_stret __sinpi __sinpif
__small_fprintf __small_printf __small_sprintf exp10 exp10f exp10l fiprintf fls flsl flsll iprintf memset_pattern16
memset_pattern4 memset_pattern8 siprintf
"""
OTHER_TARGETS = _OTHER_TARGETS.split()
"""What LLVM does not know on Linux with glibc; some of it is introduced elsewhere."""
_INTRINSICS = """
ceilf copysignf fabsf floorf fmaxf fminf nearbyintf rintf roundevenf roundf truncf
"""
INTRINSICS = _INTRINSICS.split()
"""What LLVM introduces for a call of the same function on double, which clang makes an intrinsic of; code generation
calls it by name, as by stock tools, and lld takes it from archives before LTO."""
_NEVER_INTRODUCED = """
_IO_getc _IO_putc __atomic_load __atomic_store __cxa_atexit __cxa_guard_abort __cxa_guard_acquire __cxa_guard_release
__isoc99_scanf __isoc99_sscanf __kmpc_alloc_shared __kmpc_free_shared __memccpy_chk __memmove_chk __mempcpy_chk
__memset_chk __nvvm_reflect __snprintf_chk __sprintf_chk __stpcpy_chk __stpncpy_chk __strcat_chk __strcpy_chk __strdup
__strlcat_chk __strlcpy_chk __strlen_chk __strncat_chk __strncpy_chk __strndup __strtok_r __vsnprintf_chk
__vsprintf_chk abs access acos acosh acoshl acosl aligned_alloc asin asinh asinhl asinl atan atan2 atan2f atan2l atanh
atanhl atanl atexit atof atoi atol atoll bcopy bzero cabs cabsf cabsl cbrt cbrtl ceil ceill chmod chown clearerr
closedir copysign copysignl cos cosh coshl cosl ctermid erf erff erfl execl execle execlp execv execvP execve execvp
execvpe exp expl expm1 expm1l fabs fabsl fclose fdopen feof ferror fflush ffs ffsl ffsll fgetc fgetc_unlocked fgetpos
fgets fgets_unlocked fileno flockfile floor floorl fmax fmaxl fmin fminl fmod fmodf fmodl fopen fopen64 fork fprintf
fputc_unlocked fputs_unlocked fread fread_unlocked free frexp frexpf frexpl fscanf fseek fseeko fseeko64 fsetpos fstat
fstat64 fstatvfs fstatvfs64 ftell ftello ftello64 ftrylockfile funlockfile fwrite_unlocked getc getc_unlocked getchar
getchar_unlocked getenv getitimer getlogin_r getpwnam gets gettimeofday htonl htons isascii isdigit labs lchown llabs
log log10 log10l log1p log1pl log2 log2l logb logbl logl lstat lstat64 memalign mkdir mktime modf modff modfl
nearbyint nearbyintl ntohl ntohs open open64 opendir pclose perror popen posix_memalign pow powl pread printf putc
putc_unlocked putchar_unlocked pwrite qsort read readlink realloc reallocf realpath remainder remainderf remainderl
remove remquo remquof remquol rename rewind rint rintl rmdir round roundeven roundevenl roundl scanf setbuf setitimer
setvbuf sin sinh sinhl sinl sscanf stat stat64 statvfs statvfs64 strcasecmp strcmp strcoll strcspn strncasecmp strndup
strnlen strpbrk strrchr strspn strstr strtod strtof strtok strtok_r strtol strtold strtoll strtoul strtoull strxfrm
system tanh tanhl times tmpfile tmpfile64 toascii trunc truncl uname ungetc unlink unsetenv utime utimes valloc
vec_calloc vec_free vec_malloc vec_realloc vfprintf vfscanf vprintf vscanf vsscanf wcslen write
"""
NEVER_INTRODUCED = _NEVER_INTRODUCED.split()
"""What no pass of LLVM 19 makes calls of that are not there."""
NEVER_INTRODUCED_PREFIXES = ("??", "_Zd", "_Zn")
"""Operators new and delete; those with hot and cold places need -optimize-hot-cold-new, which promises them."""
NEVER_INTRODUCED_SUFFIX = "_finite"
"""What glibc's headers made of -ffinite-math-only."""
