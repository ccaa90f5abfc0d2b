#include "tflite/Model.h"

#include "llvm/ADT/Twine.h"
#include "llvm/Support/MemoryBuffer.h"

#include <algorithm>

using namespace llvm;
using namespace mlgo;
using namespace mlgo::tflite;

/// More than any policy has, so that a damaged file takes neither memory nor
/// time: elements of a tensor, bytes of all, and elements that operators touch.
static constexpr size_t MaxElements = size_t(1) << 22;
static constexpr size_t MaxBytes = size_t(1) << 26;
static constexpr size_t MaxWork = size_t(1) << 24;

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
  size_t Bytes = 0;
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
    if ((Bytes += Size) > MaxBytes)
      return fail("its tensors are too large");
    size_t Buffer = Entry.get<uint32_t>(2);
    if (Buffer >= Buffers.size())
      return fail("tensor " + T.Name + " has no buffer");
    if (Buffers[Buffer].get<uint64_t>(1) > 1)
      return fail("tensor " + T.Name + " is outside of the FlatBuffer");
    StringRef Data = Buffers[Buffer].string(0);
    T.IsConstant = !Data.empty();
    if (T.IsConstant && Data.size() != Size)
      return fail("tensor " + T.Name + " has " + Twine(Data.size()) +
                  " bytes, and its shape " + Twine(Size));
    T.Bytes.assign(Data.begin(), Data.end());
    T.Bytes.resize(Size);
    if (T.Type == Type::Bool)
      for (char &Value : T.Bytes)
        Value = Value != 0;
    Tensors.push_back(std::move(T));
  }
  for (const Tensor &T : Tensors)
    if (T.IsConstant || T.Bytes.empty())
      Known.insert(&T);
  return Error::success();
}

Error Model::addKernel(const Operator &Op) {
  for (const Tensor *Input : Op.Inputs) {
    if (Input && !Known.contains(Input))
      return fail("tensor " + Input->Name + " is used before it is computed");
    Work += Input ? Input->size() : 0;
  }
  for (const Tensor *Output : Op.Outputs) {
    if (!Output || Output->IsConstant)
      return fail("it is damaged");
    Known.insert(Output);
    Work += Output->size();
  }
  if (Work > MaxWork)
    return fail("its operators compute too much");
  auto Compute = makeKernel(Op, Random);
  if (!Compute)
    return Compute.takeError();
  Kernels.push_back(std::move(*Compute));
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
  Known.insert(Inputs.begin(), Inputs.end());
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
    if (Error E = addKernel({Builtin, std::move(*OpInputs),
                             std::move(*OpOutputs), Entry.table(4)}))
      return E;
  }
  for (const Tensor *Output : Outputs)
    if (!Known.contains(Output))
      return fail("nothing computes the output " + Output->Name);
  return Buffer.isDamaged() ? fail("it is damaged") : Error::success();
}

Expected<std::unique_ptr<Model>> Model::load(StringRef Path, Draw Random) {
  auto File = MemoryBuffer::getFile(Path);
  if (!File)
    return fail("cannot read " + Path + ": " + File.getError().message());
  StringRef Bytes = (*File)->getBuffer();
  if (Bytes.size() < 8 || Bytes.substr(4, 4) != "TFL3")
    return fail(Path + " is not a TensorFlow Lite model");
  FlatBuffer Buffer(Bytes);
  std::unique_ptr<Model> Loaded(new Model(std::move(Random)));
  if (Error E = Loaded->read(Buffer))
    return fail(Path + " cannot be used: " + toString(std::move(E)));
  return std::move(Loaded);
}
