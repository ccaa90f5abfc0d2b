// Included before LLVM's LTOBackend.cpp, which our lld compiles again: the
// pipeline of full LTO passes through SizePipeline.h's operator.
#ifndef MLGO_LINK_HOOK_H
#define MLGO_LINK_HOOK_H

#include "program/SizePipeline.h"

#define backend(...) llvmBackend(__VA_ARGS__)

#define buildLTODefaultPipeline(Level, Summary)                                \
  buildLTODefaultPipeline(Level, Summary) | mlgo::LinkedProgram {              \
    Mod, TM, Conf, &PIC, RegisterPassPlugins                                   \
  }

#endif
