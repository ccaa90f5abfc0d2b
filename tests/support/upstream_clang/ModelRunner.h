// The C interface of ModelRunner.cpp, which loads a model.tflite and runs it.
#ifndef MLGO_TEST_MODELRUNNER_H
#define MLGO_TEST_MODELRUNNER_H

#include <cstddef>
#include <cstdint>

enum TfLiteStatus { kTfLiteOk = 0, kTfLiteError = 1 };
enum TfLiteType { kTfLiteFloat32 = 1, kTfLiteInt32 = 2, kTfLiteInt64 = 4 };
enum TfLiteAllocationType {
  kTfLiteArenaRw = 2,
  kTfLiteArenaRwPersistent = 3,
};

struct TfLiteIntArray {
  int size;
  int data[1];
};

union TfLitePtrUnion {
  void *data;
};

/// The first fields of a tensor, up to its name.
struct TfLiteTensor {
  TfLiteType type;
  TfLitePtrUnion data;
  TfLiteIntArray *dims;
  struct {
    float scale;
    int32_t zero_point;
  } params;
  TfLiteAllocationType allocation_type;
  size_t bytes;
  const void *allocation;
  const char *name;
};

struct ModelRunner {
  /// Loads a model; null if that fails.
  void *(*Load)(const char *Path);
  void (*Destroy)(void *Model);
  size_t (*NumInputs)(void *Model);
  size_t (*NumOutputs)(void *Model);
  TfLiteTensor *(*Input)(void *Model, size_t I);
  const TfLiteTensor *(*Output)(void *Model, size_t I);
  TfLiteStatus (*AllocateTensors)(void *Model);
  TfLiteStatus (*Invoke)(void *Model);
};

extern "C" const ModelRunner *mlgoModelRunner();

#endif
