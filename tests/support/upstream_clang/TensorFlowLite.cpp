#include "TensorFlowLite.h"

#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>

const ModelRunner &tflite::modelRunner() {
  static const ModelRunner *Runner = [] {
    void *Library = dlopen(MODEL_RUNNER, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    auto Get = Library ? reinterpret_cast<const ModelRunner *(*)()>(
                             dlsym(Library, "mlgoModelRunner"))
                       : nullptr;
    if (!Get) {
      fprintf(stderr, "error: %s\n", dlerror());
      exit(1);
    }
    return Get();
  }();
  return *Runner;
}
