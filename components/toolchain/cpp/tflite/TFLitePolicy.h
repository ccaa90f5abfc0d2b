// A policy as a TensorFlow Lite model: POLICYDIR/model.tflite, as LLVM's
// development mode reads it and ml-compiler-opt's trainer writes it
// (compiler_opt/rl/policy_saver.py).
#ifndef MLGO_TFLITE_POLICY_H
#define MLGO_TFLITE_POLICY_H

#include "policy/PolicyModel.h"
#include "tflite/Model.h"

namespace mlgo {

class TFLitePolicy : public PolicyModel {
public:
  /// See PolicyModel::load. The outputs are found by name and port.
  static llvm::Expected<std::unique_ptr<PolicyModel>>
  load(llvm::StringRef Directory, const std::vector<llvm::TensorSpec> &Features,
       const std::vector<void *> &Buffers,
       const std::vector<llvm::TensorSpec> &Outputs);

  /// Runs the model, which may draw random numbers itself: with -mlgo-seed the
  /// same ones in each run.
  int64_t decide() override;
  const void *output(size_t Index) const override {
    return Outputs[Index]->Bytes.data();
  }

private:
  llvm::Error bindInputs(const std::vector<llvm::TensorSpec> &Features,
                         const std::vector<void *> &Buffers);
  llvm::Error bindOutputs(const std::vector<llvm::TensorSpec> &Specs);

  std::unique_ptr<tflite::Model> Model;
  std::vector<std::pair<tflite::Tensor *, const void *>> Inputs;
  std::vector<tflite::Tensor *> Outputs;
};

} // namespace mlgo

#endif
