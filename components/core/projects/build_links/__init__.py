"""The links of a user's build: recorded by the compilers, or read from the files of ninja and of CMake's Makefiles."""
