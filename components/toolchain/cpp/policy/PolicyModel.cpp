#include "policy/PolicyModel.h"

#include "policy/NativePolicy.h"
#include "tflite/TFLitePolicy.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/FileSystem.h"

using namespace llvm;
using namespace mlgo;

PolicyModel::~PolicyModel() = default;

Error mlgo::policyError(const Twine &Message) {
  return createStringError(inconvertibleErrorCode(), "policy: " + Message);
}

Expected<std::unique_ptr<PolicyModel>>
PolicyModel::load(StringRef Directory, const std::vector<TensorSpec> &Features,
                  const std::vector<void *> &Buffers,
                  const std::vector<TensorSpec> &Outputs) {
  if (sys::fs::exists(Directory + "/policy.so"))
    return NativePolicy::load(Directory, Features, Buffers, Outputs);
  if (sys::fs::exists(Directory + "/model.tflite"))
#ifdef MLGO_TFLITE
    return TFLitePolicy::load(Directory, Features, Buffers, Outputs);
#else
    return policyError("this compiler was built without TensorFlow Lite");
#endif
  if (sys::fs::exists(Directory + "/saved_model.pb"))
    return policyError(Directory +
                       " has a SavedModel only; convert it to model.tflite "
                       "with tf.lite.TFLiteConverter, or to policy.so with "
                       "mlgo policy import");
  return policyError(Directory + " has neither policy.so nor model.tflite");
}
