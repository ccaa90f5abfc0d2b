#include "policy/tflite/Model.h"

#include "llvm/ADT/Twine.h"
#include "llvm/Support/MemoryBuffer.h"

#include <algorithm>

using namespace llvm;
using namespace mlgo;
using namespace mlgo::tflite;

/// More elements than any policy has, so that a damaged file takes no memory.
static constexpr size_t MaxElements = size_t(1) << 24;

static Error fail(const Twine &Message) {
  return createStringError(inconvertibleErrorCode(), Message);
}

size_t mlgo::tflite::sizeOf(Type T) {
  switch (T) {
  case Type::Int64:
    return 8;
  case Type::Bool:
    return 1;
  default:
    return 4;
  }
}

// The numbers of fields are those of schema.fbs.
Error Model::readTensors(const FlatTable &Graph, ArrayRef<FlatTable> Buffers) {
  for (const FlatTable &Entry : Graph.tables(0)) {
    Tensor T;
    T.Shape = Entry.numbers<int32_t>(0);
    T.Type = Type(Entry.get<int8_t>(1));
    T.Name = Entry.string(3).str();
    if (T.Type != Type::Float && T.Type != Type::Int32 &&
        T.Type != Type::Int64 && T.Type != Type::Bool)
      return fail("tensor " + T.Name + " has the unsupported type " +
                  Twine(int(T.Type)));
    size_t Size = 1;
    for (int32_t Extent : T.Shape)
      Size = Extent < 0 || Size > MaxElements ? MaxElements + 1 : Size * Extent;
    if (Size > MaxElements)
      return fail("tensor " + T.Name + " has an unknown or too large shape");
    Size *= sizeOf(T.Type);
    size_t Buffer = Entry.get<uint32_t>(2);
    StringRef Data = Buffer < Buffers.size() ? Buffers[Buffer].string(0) : "";
    T.IsConstant = !Data.empty();
    if (T.IsConstant && Data.size() != Size)
      return fail("tensor " + T.Name + " has " + Twine(Data.size()) +
                  " bytes, and its shape " + Twine(Size));
    T.Bytes.assign(Data.begin(), Data.end());
    T.Bytes.resize(Size);
    Tensors.push_back(std::move(T));
  }
  return Error::success();
}

Expected<std::vector<Tensor *>> Model::at(ArrayRef<int32_t> Indices) {
  std::vector<Tensor *> Result;
  for (int32_t Index : Indices) {
    if (Index < -1 || Index >= int64_t(Tensors.size()))
      return fail("it is damaged");
    Result.push_back(Index < 0 ? nullptr : &Tensors[Index]);
  }
  return Result;
}

Error Model::read(const FlatBuffer &Buffer) {
  FlatTable Root = FlatTable::root(Buffer);
  std::vector<FlatTable> Codes = Root.tables(1), Graphs = Root.tables(2);
  // The first is the model; others are what it calls, or initializes.
  if (Buffer.isDamaged() || Graphs.empty())
    return fail("it is damaged");
  const FlatTable &Graph = Graphs.front();
  if (Error E = readTensors(Graph, Root.tables(4)))
    return E;
  for (auto [Field, Ends] : {std::pair(1, &Inputs), std::pair(2, &Outputs)}) {
    auto Found = at(Graph.numbers<int32_t>(Field));
    if (!Found)
      return Found.takeError();
    if (is_contained(*Found, nullptr))
      return fail("it is damaged");
    *Ends = std::move(*Found);
  }
  for (const FlatTable &Entry : Graph.tables(3)) {
    uint32_t Code = Entry.get<uint32_t>(0);
    auto OpInputs = at(Entry.numbers<int32_t>(1));
    auto OpOutputs = at(Entry.numbers<int32_t>(2));
    if (!OpInputs || !OpOutputs || Code >= Codes.size()) {
      consumeError(OpInputs.takeError());
      consumeError(OpOutputs.takeError());
      return fail("it is damaged");
    }
    if (StringRef Custom = Codes[Code].string(1); !Custom.empty())
      return fail("it has the custom operator " + Custom);
    // Codes below 128 are in the older of the two fields.
    int32_t Builtin = std::max<int32_t>(Codes[Code].get<int8_t>(0),
                                        Codes[Code].get<int32_t>(3));
    auto Compute = makeKernel(
        {Builtin, std::move(*OpInputs), std::move(*OpOutputs), Entry.table(4)},
        Random);
    if (!Compute)
      return Compute.takeError();
    Kernels.push_back(std::move(*Compute));
  }
  return Buffer.isDamaged() ? fail("it is damaged") : Error::success();
}

Expected<std::unique_ptr<Model>> Model::load(StringRef Path) {
  auto File = MemoryBuffer::getFile(Path);
  if (!File)
    return fail("cannot read " + Path + ": " + File.getError().message());
  StringRef Bytes = (*File)->getBuffer();
  if (Bytes.size() < 8 || Bytes.substr(4, 4) != "TFL3")
    return fail(Path + " is not a TensorFlow Lite model");
  FlatBuffer Buffer(Bytes);
  auto Loaded = std::make_unique<Model>();
  if (Error E = Loaded->read(Buffer))
    return fail(Path + " cannot be used: " + toString(std::move(E)));
  return std::move(Loaded);
}
