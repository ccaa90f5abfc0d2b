// A tensor of a TensorFlow Lite model, and what an operator does with some.
#ifndef MLGO_TFLITE_TENSOR_H
#define MLGO_TFLITE_TENSOR_H

#include "tflite/FlatBuffer.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace mlgo {
namespace tflite {

/// TensorType of TensorFlow Lite's schema; no others are supported.
enum class Type : int8_t { Float = 0, Int32 = 2, Int64 = 4, Bool = 6 };

size_t sizeOf(Type T);

struct Tensor {
  std::string Name;
  tflite::Type Type = Type::Float;
  std::vector<int32_t> Shape;
  /// The file has its value.
  bool IsConstant = false;
  /// In the order of rows; of constants as of those that are computed.
  std::vector<char> Bytes;

  size_t size() const { return Bytes.size() / sizeOf(Type); }
  template <class T> T *data() { return reinterpret_cast<T *>(Bytes.data()); }
  template <class T> const T *data() const {
    return reinterpret_cast<const T *>(Bytes.data());
  }
};

/// Computes the outputs of an operator from its inputs.
using Kernel = std::function<void()>;

/// Returns a random number in [0, 1).
using Draw = std::function<double()>;

/// An operator of a model, before it is known whether it can run.
struct Operator {
  int32_t Code;
  /// Null for an optional input that is absent.
  std::vector<Tensor *> Inputs;
  std::vector<Tensor *> Outputs;
  FlatTable Options;
};

/// Returns what computes an operator.
///
/// Errors: the operator is not supported, or its tensors do not fit.
llvm::Expected<Kernel> makeKernel(const Operator &Op, const Draw &Random);

} // namespace tflite
} // namespace mlgo

#endif
