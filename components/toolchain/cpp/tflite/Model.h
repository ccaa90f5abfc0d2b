// A TensorFlow Lite model, evaluated one operator after the other.
//
// It runs the models of ml-compiler-opt's and this project's policies without
// a library: they have some thirty kinds of operators, static shapes and no
// quantization (tensorflow/lite/schema/schema.fbs).
#ifndef MLGO_TFLITE_MODEL_H
#define MLGO_TFLITE_MODEL_H

#include "tflite/Tensor.h"
#include "llvm/ADT/DenseSet.h"

#include <memory>

namespace mlgo {
namespace tflite {

class Model {
public:
  /// Reads a model.
  ///
  /// Errors: there is no such file, it is damaged, or it has an operator or a
  /// type that is not supported.
  ///
  /// \p Random is for the operators that draw.
  static llvm::Expected<std::unique_ptr<Model>> load(llvm::StringRef Path,
                                                     Draw Random);

  llvm::ArrayRef<Tensor *> inputs() { return Inputs; }
  llvm::ArrayRef<Tensor *> outputs() { return Outputs; }

  /// Computes the outputs from the inputs.
  void run() {
    for (const Kernel &Compute : Kernels)
      Compute();
  }

private:
  explicit Model(Draw Random) : Random(std::move(Random)) {}
  llvm::Error read(const FlatBuffer &Buffer);
  llvm::Error readTensors(const FlatTable &Graph,
                          llvm::ArrayRef<FlatTable> Buffers);
  llvm::Error addKernel(const Operator &Op);
  llvm::Expected<std::vector<Tensor *>> at(llvm::ArrayRef<int32_t> Indices);

  std::vector<Tensor> Tensors;
  std::vector<Tensor *> Inputs, Outputs;
  std::vector<Kernel> Kernels;
  /// The tensors with a value: inputs, constants, and what was computed.
  llvm::DenseSet<const Tensor *> Known;
  /// Elements that the operators read and write.
  size_t Work = 0;
  const Draw Random;
};

} // namespace tflite
} // namespace mlgo

#endif
