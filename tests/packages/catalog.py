"""The Debian packages that are shrunk: small ones with their own tests, of C and C++ and five build systems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

System = Literal["autotools", "CMake", "Meson", "Make", "debian/rules"]


@dataclass(frozen=True)
class Package:
    """A source package.

    Attributes:
        name: of Debian's source package.
        build: the build; "" for what `mlgo shrink` detects.
        check: shell command that tests it; "" for the tests that `mlgo shrink` finds.
        other_compilers: whether the rows of gcc and of a newer clang are tried: of quick builds.
        without_lto: which distributions build it without LTO, or what about it LTO is known to break.
    """

    name: str
    system: System
    language: Literal["C", "C++"] = "C"
    build: str = ""
    check: str = ""
    other_compilers: bool = False
    without_lto: str = ""


_SYMVER = "symbol versions in assembly"
_CMAKE = "cmake -S . -B b -DCMAKE_BUILD_TYPE=Release {} && cmake --build b -j$JOBS"
_MESON = "meson setup b --buildtype=release {} && ninja -C b -j$JOBS"

PACKAGES = (
    Package("bzip2", "Make", other_compilers=True),
    Package("lzip", "autotools", "C++", other_compilers=True),
    Package("clzip", "autotools"),
    Package("lunzip", "autotools"),
    Package("pdlzip", "autotools"),
    Package("lziprecover", "autotools", "C++"),
    Package("gddrescue", "autotools", "C++"),
    Package("discount", "Make", build="./configure.sh && make -j$JOBS"),
    Package("libscrypt", "Make"),
    Package("miniupnpc", "Make", build="make -j$JOBS"),
    Package("jimtcl", "autotools"),
    Package("ninja-build", "CMake", "C++"),
    Package("dos2unix", "Make"),
    Package("c-blosc", "CMake"),
    Package("cjson", "CMake", build=_CMAKE.format("-DENABLE_CJSON_UTILS=On")),
    Package("cmocka", "CMake", build=_CMAKE.format("-DUNIT_TESTING=ON")),
    Package("libaio", "Make", check="make partcheck", without_lto=_SYMVER),
    Package("mawk", "autotools"),
    Package("jbigkit", "Make"),
    Package("lmdb", "Make", build="make -C libraries/liblmdb -j$JOBS"),
    Package("libpfm4", "Make", check="tests/validate"),
    Package("ncompress", "Make"),
    Package("tinyxml", "Make", "C++"),
    Package("muparser", "CMake", "C++", _CMAKE.format("-DENABLE_OPENMP=OFF")),
    Package("unittest++", "CMake", "C++"),
    Package("libcap-ng", "autotools"),
    Package("tinycdb", "Make", other_compilers=True),
    Package("unifdef", "Make", other_compilers=True),
    Package("hiredis", "Make"),
    Package("http-parser", "Make"),
    Package("libtermkey", "Make"),
    Package("libvterm", "Make"),
    Package("scdoc", "Make", other_compilers=True),
    Package("figlet", "Make", other_compilers=True),
    Package("xxhash", "Make"),
    Package("libdeflate", "Make"),
    Package("libspng", "Meson", build=_MESON.format("-Ddev_build=true"), without_lto="Debian: optimize=-lto"),
    Package("serd", "Meson"),
    Package("fribidi", "Meson"),
    Package("sord", "Meson"),
    Package("double-conversion", "CMake", "C++", _CMAKE.format("-DBUILD_TESTING=ON")),
    Package("tinyxml2", "CMake", "C++"),
    Package("pugixml", "CMake", "C++", _CMAKE.format("-DPUGIXML_BUILD_TESTS=ON -DBUILD_TESTING=ON")),
    Package("cmark", "CMake"),
    Package("libcue", "CMake"),
    Package("uchardet", "CMake", "C++"),
    Package("libogg", "CMake"),
    Package("jansson", "CMake"),
    Package("json-c", "CMake"),
    Package("brotli", "CMake"),
    Package("mimalloc", "CMake"),
    Package("libmaxminddb", "CMake"),
    Package("snappy", "CMake", "C++"),
    Package("graphite2", "CMake", "C++"),
    Package("ed", "autotools"),
    Package("zlib", "autotools", build="./configure && make -j$JOBS"),
    Package("libmd", "autotools", without_lto=_SYMVER),
    Package("numactl", "autotools", without_lto=_SYMVER),
    Package("libcsv", "autotools"),
    Package("popt", "autotools"),
    Package("expat", "autotools", build="cd expat && ./buildconf.sh && ./configure && make -j$JOBS"),
    Package("libyaml", "autotools", build="autoreconf -fi && ./configure && make -j$JOBS"),
    Package("libb2", "autotools"),
    Package("lzo2", "autotools", build="./configure --enable-shared && make -j$JOBS"),
    Package("liburcu", "autotools"),
    Package("libbsd", "autotools", without_lto=_SYMVER),
    Package("alsa-lib", "autotools", without_lto="Debian: -flto-partition=none"),
    Package("libffi", "autotools"),
    Package("libonig", "CMake", build=_CMAKE.format("-DENABLE_POSIX_API=ON -DBUILD_TEST=ON")),
    Package("libpng1.6", "autotools"),
    Package("pcre2", "autotools"),
    Package("libseccomp", "autotools"),
    Package("libconfig", "autotools", "C++"),
    Package("hunspell", "autotools", "C++"),
    Package("gperf", "autotools", "C++"),
    Package("mksh", "Make", "C", "sh Build.sh -r", "./test.sh"),
    Package("tcc", "autotools"),
    Package("jq", "autotools"),
    Package("libedit", "autotools"),
    Package("gzip", "autotools"),
    Package("patch", "autotools"),
    Package("hello", "autotools"),
    Package("mxml", "autotools"),
    Package("libtommath", "Make", check="make test && ./test"),
    Package("advancecomp", "debian/rules", "C++", "debian/rules build"),
    Package("mtools", "debian/rules", build="debian/rules build"),
    Package("lzop", "debian/rules", build="debian/rules build"),
    Package("gdbm", "debian/rules", build="debian/rules build"),
    Package("libidn2", "debian/rules", build="debian/rules build"),
    Package("libmodbus", "debian/rules", build="debian/rules build"),
    Package("qhull", "CMake", "C++"),
    Package("leveldb", "CMake", "C++"),
    Package("re2", "Make", "C++"),
    Package("msgpack-c", "CMake", "C++"),
    Package("xz-utils", "autotools"),
    Package("libsamplerate", "autotools"),
    Package("speex", "autotools"),
    Package("wavpack", "CMake"),
    Package("nghttp3", "CMake"),
    Package("libmspack", "autotools"),
    Package("libexif", "autotools"),
    Package("libsoxr", "CMake"),
    Package("indent", "autotools"),
    Package("file", "autotools"),
    Package("libzip", "CMake"),
    Package("snowball", "Make"),
    Package("nettle", "autotools"),
    Package("libsodium", "autotools"),
    Package("libgpg-error", "autotools"),
    Package("libassuan", "autotools"),
    Package("cproto", "autotools"),
    Package("libnl3", "autotools"),
)
