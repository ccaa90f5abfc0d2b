// Reads FlatBuffers (https://flatbuffers.dev/internals), of which a TensorFlow
// Lite model is one. Every access is checked: a file may be damaged.
#ifndef MLGO_FLAT_BUFFER_H
#define MLGO_FLAT_BUFFER_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <cstring>
#include <vector>

namespace mlgo {

/// A buffer, and whether something pointed out of it. What is read there is 0.
class FlatBuffer {
public:
  explicit FlatBuffer(llvm::StringRef Bytes) : Bytes(Bytes) {}

  template <class T> T read(size_t Position) const {
    T Value = T();
    if (Position > Bytes.size() || Bytes.size() - Position < sizeof(T))
      Damaged = true;
    else
      std::memcpy(&Value, Bytes.data() + Position, sizeof(T));
    return Value;
  }

  llvm::StringRef bytes(size_t Position, size_t Size) const {
    if (Position > Bytes.size() || Bytes.size() - Position < Size) {
      Damaged = true;
      return "";
    }
    return Bytes.substr(Position, Size);
  }

  bool isDamaged() const { return Damaged; }

private:
  llvm::StringRef Bytes;
  mutable bool Damaged = false;
};

/// A table of a FlatBuffer: fields by their number in the schema. A field that
/// is absent has its default.
class FlatTable {
public:
  FlatTable(const FlatBuffer &Buffer, size_t Position)
      : Buffer(&Buffer), Position(Position) {}

  /// Returns the root of a buffer.
  static FlatTable root(const FlatBuffer &Buffer) {
    return FlatTable(Buffer, Buffer.read<uint32_t>(0));
  }

  template <class T> T get(unsigned Field, T Default = T()) const {
    size_t At = find(Field);
    return At ? Buffer->read<T>(At) : Default;
  }

  FlatTable table(unsigned Field) const {
    size_t At = find(Field);
    return FlatTable(*Buffer, At ? follow(At) : 0);
  }

  llvm::StringRef string(unsigned Field) const {
    auto [At, Size] = vector(Field);
    return Buffer->bytes(At, Size);
  }

  /// Returns the numbers of a vector.
  template <class T> std::vector<T> numbers(unsigned Field) const {
    auto [At, Size] = vector(Field);
    llvm::StringRef Bytes = Buffer->bytes(At, Size * sizeof(T));
    std::vector<T> Numbers(Bytes.size() / sizeof(T));
    if (!Numbers.empty())
      std::memcpy(Numbers.data(), Bytes.data(), Bytes.size());
    return Numbers;
  }

  /// Returns the tables of a vector.
  std::vector<FlatTable> tables(unsigned Field) const {
    auto [At, Size] = vector(Field);
    std::vector<FlatTable> Tables;
    if (!Buffer->bytes(At, Size * sizeof(uint32_t)).empty())
      for (size_t I = 0; I < Size; ++I)
        Tables.emplace_back(*Buffer, follow(At + I * sizeof(uint32_t)));
    return Tables;
  }

private:
  size_t follow(size_t At) const { return At + Buffer->read<uint32_t>(At); }

  /// Returns where a field is, 0 if it is absent.
  size_t find(unsigned Field) const {
    if (!Position)
      return 0;
    size_t Offsets = Position - Buffer->read<int32_t>(Position);
    size_t Entry = sizeof(uint16_t) * (2 + Field);
    if (Buffer->read<uint16_t>(Offsets) < Entry + sizeof(uint16_t))
      return 0;
    uint16_t Offset = Buffer->read<uint16_t>(Offsets + Entry);
    return Offset ? Position + Offset : 0;
  }

  /// Returns where the elements of a vector are, and how many.
  std::pair<size_t, size_t> vector(unsigned Field) const {
    size_t At = find(Field);
    if (!At)
      return {0, 0};
    size_t Begin = follow(At);
    return {Begin + sizeof(uint32_t), Buffer->read<uint32_t>(Begin)};
  }

  const FlatBuffer *Buffer;
  size_t Position;
};

} // namespace mlgo

#endif
