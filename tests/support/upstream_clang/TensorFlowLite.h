// What LLVM's TFLiteUtils.cpp uses of TensorFlow Lite's C++ interface, on top
// of ModelRunner.h. Every header of tensorflow/lite/ that it includes is this
// one.
#ifndef MLGO_TEST_TENSORFLOWLITE_H
#define MLGO_TEST_TENSORFLOWLITE_H

#include "ModelRunner.h"

#include <memory>
#include <numeric>
#include <string>
#include <vector>

namespace tflite {
/// Opens the library that runs models. Exits if it cannot be loaded.
const ModelRunner &modelRunner();

enum LogSeverity { TFLITE_LOG_WARNING = 2 };
struct LoggerOptions {
  static void SetMinimumLogSeverity(LogSeverity) {}
};
struct StderrReporter {};

struct FlatBufferModel {
  static std::unique_ptr<FlatBufferModel> BuildFromFile(const char *Path,
                                                        StderrReporter *) {
    return std::make_unique<FlatBufferModel>(FlatBufferModel{Path});
  }
  std::string Path;
};

namespace ops::builtin {
struct BuiltinOpResolver {};
} // namespace ops::builtin

class Interpreter {
public:
  explicit Interpreter(void *Model)
      : Model(Model), Inputs(modelRunner().NumInputs(Model)),
        Outputs(modelRunner().NumOutputs(Model)) {
    std::iota(Inputs.begin(), Inputs.end(), 0);
    std::iota(Outputs.begin(), Outputs.end(), 0);
  }
  ~Interpreter() { modelRunner().Destroy(Model); }
  const std::vector<int> &inputs() const { return Inputs; }
  const std::vector<int> &outputs() const { return Outputs; }
  TfLiteTensor *tensor(int I) { return modelRunner().Input(Model, I); }
  const TfLiteTensor *output_tensor(int I) {
    return modelRunner().Output(Model, I);
  }
  const char *GetInputName(int I) { return tensor(I)->name; }
  const char *GetOutputName(int I) { return output_tensor(I)->name; }
  TfLiteStatus AllocateTensors() {
    return modelRunner().AllocateTensors(Model);
  }
  TfLiteStatus Invoke() { return modelRunner().Invoke(Model); }

private:
  void *Model;
  std::vector<int> Inputs;
  std::vector<int> Outputs;
};

struct InterpreterBuilder {
  InterpreterBuilder(const FlatBufferModel &Model,
                     const ops::builtin::BuiltinOpResolver &)
      : Path(Model.Path) {}
  void operator()(std::unique_ptr<Interpreter> *Result) {
    if (void *Model = modelRunner().Load(Path.c_str()))
      *Result = std::make_unique<Interpreter>(Model);
  }
  std::string Path;
};
} // namespace tflite

#endif
