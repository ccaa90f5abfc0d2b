// Included before LLVM's LTOBackend.cpp, which our lld compiles again: the
// pipeline of full LTO passes through SizePipeline.h's operator, and each
// module's code generator has the outliner if the module asks for it.
#ifndef MLGO_LINK_HOOK_H
#define MLGO_LINK_HOOK_H

#include "outlining/Outlining.h"
#include "program/SizePipeline.h"
#include "llvm/Target/TargetMachine.h"

#define backend(...) llvmBackend(__VA_ARGS__)

#define buildLTODefaultPipeline(Level, Summary)                                \
  buildLTODefaultPipeline(Level, Summary) | mlgo::LinkedProgram {              \
    Mod, TM, Conf, &PIC, RegisterPassPlugins                                   \
  }

#define addPassesToEmitFile(Passes, ...)                                       \
  addPassesToEmitFile((mlgo::requestOutlining(*TM, Mod), Passes), __VA_ARGS__)

#endif
