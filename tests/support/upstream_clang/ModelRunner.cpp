// Runs model.tflite with the TensorFlow Lite that is part of TensorFlow's
// wheel. The wheel has the library, but not its headers, so the few classes are
// declared here, as TensorFlow 2.15 has them.
#include "ModelRunner.h"

#include <memory>
#include <vector>

namespace tflite {
class ErrorReporter;
class InterpreterOptions;
class OpResolver;
ErrorReporter *DefaultErrorReporter();

namespace ops::builtin {
class BuiltinOpResolver {
public:
  BuiltinOpResolver();

private:
  alignas(16) char Storage[4096];
};
} // namespace ops::builtin

namespace impl {
class FlatBufferModel {
public:
  static std::unique_ptr<FlatBufferModel> BuildFromFile(const char *Path,
                                                        ErrorReporter *);
  ~FlatBufferModel();
};

/// The signature of a model, with its names in alphabetical order.
class SignatureRunner {
public:
  TfLiteTensor *input_tensor(const char *Name);
  const TfLiteTensor *output_tensor(const char *Name) const;

  const void *Definition;
  void *Subgraph;
  std::vector<const char *> InputNames;
  std::vector<const char *> OutputNames;
};

class Interpreter {
public:
  ~Interpreter();
  SignatureRunner *GetSignatureRunner(const char *Key);
  TfLiteStatus AllocateTensors();
  TfLiteStatus Invoke();
};

class InterpreterBuilder {
public:
  InterpreterBuilder(const FlatBufferModel &, const OpResolver &,
                     const InterpreterOptions *);
  ~InterpreterBuilder();
  TfLiteStatus operator()(std::unique_ptr<Interpreter> *);

private:
  alignas(16) char Storage[4096];
};
} // namespace impl
} // namespace tflite

using namespace tflite::impl;

namespace {
struct LoadedModel {
  std::unique_ptr<FlatBufferModel> Model;
  std::unique_ptr<Interpreter> Runs;
  SignatureRunner *Signature = nullptr;
};
} // namespace

static LoadedModel &of(void *Model) {
  return *static_cast<LoadedModel *>(Model);
}

static void *load(const char *Path) {
  auto Loaded = std::make_unique<LoadedModel>();
  Loaded->Model = FlatBufferModel::BuildFromFile(
      Path, tflite::DefaultErrorReporter());
  if (!Loaded->Model)
    return nullptr;
  // Never destroyed: the interpreter refers to it.
  auto *Resolver = new tflite::ops::builtin::BuiltinOpResolver;
  InterpreterBuilder Build(
      *Loaded->Model, reinterpret_cast<tflite::OpResolver &>(*Resolver),
      nullptr);
  if (Build(&Loaded->Runs) != kTfLiteOk || !Loaded->Runs)
    return nullptr;
  Loaded->Signature = Loaded->Runs->GetSignatureRunner("action");
  return Loaded->Signature ? Loaded.release() : nullptr;
}

static const ModelRunner Runner = {
    load,
    [](void *Model) { delete &of(Model); },
    [](void *Model) { return of(Model).Signature->InputNames.size(); },
    [](void *Model) { return of(Model).Signature->OutputNames.size(); },
    [](void *Model, size_t I) {
      SignatureRunner &Signature = *of(Model).Signature;
      return Signature.input_tensor(Signature.InputNames[I]);
    },
    [](void *Model, size_t I) {
      SignatureRunner &Signature = *of(Model).Signature;
      return Signature.output_tensor(Signature.OutputNames[I]);
    },
    [](void *Model) { return of(Model).Runs->AllocateTensors(); },
    [](void *Model) { return of(Model).Runs->Invoke(); },
};

const ModelRunner *mlgoModelRunner() { return &Runner; }
