"""An llvm-project tree whose LLVM is three small libraries, for tests of builds of LLVM."""

from __future__ import annotations

from pathlib import Path

from components.toolchain.source import VERSION_FILE, source_files

_INSTALLED = (
    "bin/clang++",
    "bin/ld.lld",
    "lib/libLLVMAnalysis.a",
    "lib/cmake/clang/ClangConfig.cmake",
    "lib/libclangDriver.a",
    "lib/clang/19/include/stddef.h",
)
_PROJECT = """\
cmake_minimum_required(VERSION 3.20)
project(small LANGUAGES CXX)
include(../cmake/Modules/LLVMVersion.cmake)
file(WRITE ${CMAKE_BINARY_DIR}/LLVMConfig.cmake
     "set(LLVM_PACKAGE_VERSION ${LLVM_VERSION_MAJOR}.${LLVM_VERSION_MINOR}.${LLVM_VERSION_PATCH})\n")
file(WRITE ${CMAKE_BINARY_DIR}/targets "${LLVM_TARGETS_TO_BUILD}")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
foreach(name lldELF lldCommon LLVMAnalysis)
  add_library(${name} STATIC ${name}.cpp)
endforeach()
add_custom_target(distribution DEPENDS LLVMAnalysis)
add_custom_target(install-distribution-stripped
                  COMMAND ${CMAKE_COMMAND} -P ${CMAKE_BINARY_DIR}/cmake_install.cmake DEPENDS LLVMAnalysis)
install(FILES ${CMAKE_BINARY_DIR}/LLVMConfig.cmake DESTINATION lib/cmake/llvm)
install(FILES ${CMAKE_BINARY_DIR}/targets DESTINATION share)
install(DIRECTORY installed/ DESTINATION .)
install(TARGETS LLVMAnalysis)
"""


def write_llvm_project(root: Path) -> Path:
    """Write the tree, of version 19.1.9, to the directory `root`; return that."""
    required = (*source_files(19), "clang/CMakeLists.txt", "lld/CMakeLists.txt", "lld/include/lld/Common/Driver.h")
    texts = {name: f"// {name}\n" for name in required}
    texts |= {f"llvm/installed/{name}": "" for name in _INSTALLED if name != "lib/libLLVMAnalysis.a"}
    texts |= {f"llvm/{name}.cpp": f"int of_{name};\n" for name in ("lldELF", "lldCommon", "LLVMAnalysis")}
    texts["llvm/CMakeLists.txt"] = _PROJECT
    texts[VERSION_FILE] = "".join(
        f"set(LLVM_VERSION_{part} {value})\n" for part, value in (("MAJOR", 19), ("MINOR", 1), ("PATCH", 9))
    )
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root
