// The operators of TensorFlow Lite that policies have. What each computes:
// https://www.tensorflow.org/mlir/tfl_ops; codes and options: schema.fbs.
#include "tflite/Tensor.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/ErrorHandling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <type_traits>

using namespace llvm;
using namespace mlgo::tflite;

namespace {
/// BuiltinOperator of the schema.
enum Code : int32_t {
  ADD = 0,
  CONCATENATION = 2,
  FLOOR = 8,
  FULLY_CONNECTED = 9,
  LOGISTIC = 14,
  MUL = 18,
  RELU = 19,
  RESHAPE = 22,
  SOFTMAX = 25,
  TANH = 28,
  GATHER = 36,
  MEAN = 40,
  SUB = 41,
  DIV = 42,
  SQUEEZE = 43,
  EXP = 47,
  LOG_SOFTMAX = 50,
  CAST = 53,
  MAXIMUM = 55,
  ARG_MAX = 56,
  MINIMUM = 57,
  LESS = 58,
  NEG = 59,
  GREATER = 61,
  GREATER_EQUAL = 62,
  LESS_EQUAL = 63,
  SELECT = 64,
  TILE = 69,
  EXPAND_DIMS = 70,
  EQUAL = 71,
  NOT_EQUAL = 72,
  LOG = 73,
  SUM = 74,
  SQRT = 75,
  RSQRT = 76,
  POW = 78,
  REDUCE_MAX = 82,
  PACK = 83,
  LOGICAL_OR = 84,
  LOGICAL_AND = 86,
  LOGICAL_NOT = 87,
  REDUCE_ANY = 91,
  SQUARE = 92,
  SQUARED_DIFFERENCE = 99,
  ABS = 101,
  SELECT_V2 = 123,
  BUCKETIZE = 147,
  RANDOM_UNIFORM = 148,
  MULTINOMIAL = 149,
  SIGN = 158,
};

/// ActivationFunctionType of the schema.
enum class Activation : int8_t { None = 0, Relu = 1, Relu6 = 3, Tanh = 4 };

using Indices = std::vector<uint32_t>;

/// Builds the kernel of one operator. A kernel holds pointers to its tensors,
/// and nothing of the file.
class KernelBuilder {
public:
  KernelBuilder(const Operator &Op, const Draw &Random)
      : Op(Op), Random(Random) {}

  Expected<Kernel> build();

private:
  Error fail(const Twine &Problem) const {
    return createStringError(inconvertibleErrorCode(),
                             "operator " + Twine(Op.Code) + " " + Problem);
  }
  Expected<Kernel> unfit() const { return fail("has tensors that do not fit"); }

  /// Returns whether there are so many inputs, all present, and an output.
  bool hasInputs(size_t Number) const {
    return Op.Inputs.size() == Number && !is_contained(Op.Inputs, nullptr) &&
           hasOutput();
  }
  bool hasOutput() const { return Op.Outputs.size() == 1 && Op.Outputs[0]; }
  Tensor &in(size_t I) const { return *Op.Inputs[I]; }
  Tensor &out() const { return *Op.Outputs[0]; }

  template <class T> static bool holds(const Tensor &Value) {
    if constexpr (std::is_same_v<T, float>)
      return Value.Type == Type::Float;
    else if constexpr (std::is_same_v<T, int32_t>)
      return Value.Type == Type::Int32;
    else if constexpr (std::is_same_v<T, int64_t>)
      return Value.Type == Type::Int64;
    else
      return Value.Type == Type::Bool;
  }

  /// Calls \p Build with a null pointer to the type of \p Value's elements.
  template <class... Types, class F>
  Expected<Kernel> dispatch(const Tensor &Value, F Build) const {
    std::optional<Expected<Kernel>> Result;
    ((!Result && holds<Types>(Value)
          ? (void)Result.emplace(Build(static_cast<Types *>(nullptr)))
          : void()),
     ...);
    if (!Result)
      return fail("has elements of the unsupported type " +
                  Twine(int(Value.Type)));
    return std::move(*Result);
  }

  std::optional<Indices> broadcast(const Tensor &Value) const;
  std::optional<std::vector<int32_t>> constants(const Tensor &Value) const;
  std::optional<size_t> axis(int64_t Axis, size_t Rank) const;
  Expected<Kernel> activate(Kernel Compute, Activation Function) const;

  template <class T, class F> Expected<Kernel> unary(F Function) const;
  template <class T, class R, class F>
  Expected<Kernel> binary(F Function) const;
  template <class F> Expected<Kernel> arithmetic(F Function) const;
  template <class F> Expected<Kernel> compare(F Function) const;
  template <class T, class F>
  Expected<Kernel> reduce(T Start, F Function, bool Mean = false) const;

  Expected<Kernel> argMax() const;
  Expected<Kernel> bucketize() const;
  Expected<Kernel> cast() const;
  Expected<Kernel> concatenate(size_t Axis, bool Packs) const;
  Expected<Kernel> copy() const;
  Expected<Kernel> fullyConnected() const;
  Expected<Kernel> gather() const;
  Expected<Kernel> multinomial() const;
  Expected<Kernel> randomUniform() const;
  Expected<Kernel> select() const;
  Expected<Kernel> softmax(bool Log) const;
  Expected<Kernel> tile() const;

  const Operator &Op;
  const Draw &Random;
};

/// Calls \p Function; integers are unsigned meanwhile, because they wrap.
template <class T, class F> T wrapping(F Function, T A, T B) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(Function(static_cast<U>(A), static_cast<U>(B)));
  } else {
    return Function(A, B);
  }
}

size_t product(ArrayRef<int32_t> Extents) {
  return std::accumulate(Extents.begin(), Extents.end(), size_t(1),
                         std::multiplies<size_t>());
}
} // namespace

/// Returns for each element of the output the element of \p Value, of which it
/// is computed; nothing if the shapes do not fit.
std::optional<Indices> KernelBuilder::broadcast(const Tensor &Value) const {
  ArrayRef<int32_t> Shape = out().Shape;
  const size_t Missing = Shape.size() - Value.Shape.size();
  if (Value.Shape.size() > Shape.size())
    return std::nullopt;
  Indices Result = {0};
  size_t Stride = Value.size();
  for (size_t I = 0; I < Shape.size(); ++I) {
    const int32_t Extent = I < Missing ? 1 : Value.Shape[I - Missing];
    if (Extent != 1 && Extent != Shape[I])
      return std::nullopt;
    Stride /= std::max(Extent, 1);
    Indices Next;
    for (uint32_t Begin : Result)
      for (int32_t J = 0; J < Shape[I]; ++J)
        Next.push_back(Begin + (Extent == 1 ? 0 : J * Stride));
    Result = std::move(Next);
  }
  return Result;
}

/// Returns the integers of a constant tensor.
std::optional<std::vector<int32_t>>
KernelBuilder::constants(const Tensor &Value) const {
  if (!Value.IsConstant || Value.Type != Type::Int32)
    return std::nullopt;
  const int32_t *Begin = Value.data<int32_t>();
  return std::vector<int32_t>(Begin, Begin + Value.size());
}

/// Returns an axis, which may count from the end; nothing if there is none.
std::optional<size_t> KernelBuilder::axis(int64_t Axis, size_t Rank) const {
  if (Axis < 0)
    Axis += Rank;
  if (Axis < 0 || Axis >= int64_t(Rank))
    return std::nullopt;
  return Axis;
}

Expected<Kernel> KernelBuilder::activate(Kernel Compute,
                                         Activation Function) const {
  if (Function == Activation::None)
    return Compute;
  if (Function != Activation::Relu && Function != Activation::Relu6 &&
      Function != Activation::Tanh)
    return fail("has the unsupported activation " + Twine(int(Function)));
  if (out().Type != Type::Float)
    return unfit();
  return Kernel([Compute = std::move(Compute), Function, Out = &out()] {
    Compute();
    for (float &X : MutableArrayRef<float>(Out->data<float>(), Out->size()))
      X = Function == Activation::Tanh    ? std::tanh(X)
          : Function == Activation::Relu6 ? std::min(std::max(X, 0.0f), 6.0f)
                                          : std::max(X, 0.0f);
  });
}

template <class T, class F>
Expected<Kernel> KernelBuilder::unary(F Function) const {
  if (!hasInputs(1) || !holds<T>(in(0)) || !holds<T>(out()) ||
      in(0).size() != out().size())
    return unfit();
  return Kernel([Function, In = &in(0), Out = &out()] {
    std::transform(In->data<T>(), In->data<T>() + In->size(), Out->data<T>(),
                   Function);
  });
}

template <class T, class R, class F>
Expected<Kernel> KernelBuilder::binary(F Function) const {
  auto Left = broadcast(in(0)), Right = broadcast(in(1));
  if (!Left || !Right || !holds<T>(in(0)) || !holds<T>(in(1)) ||
      !holds<R>(out()))
    return unfit();
  return Kernel([Function, Left = std::move(*Left), Right = std::move(*Right),
                 A = &in(0), B = &in(1), Out = &out()] {
    for (size_t I = 0; I < Left.size(); ++I)
      Out->data<R>()[I] =
          Function(A->data<T>()[Left[I]], B->data<T>()[Right[I]]);
  });
}

template <class F>
Expected<Kernel> KernelBuilder::arithmetic(F Function) const {
  if (!hasInputs(2))
    return unfit();
  return dispatch<float, int32_t, int64_t>(in(0), [&](auto *Null) {
    using T = std::remove_pointer_t<decltype(Null)>;
    auto Compute = binary<T, T>(
        [Function](T A, T B) { return static_cast<T>(Function(A, B)); });
    if (!Compute)
      return Compute;
    // The fused activation is the first option of ADD, MUL, SUB and DIV; the
    // others have none.
    bool Fused = is_contained({ADD, MUL, SUB, DIV}, Op.Code);
    return activate(std::move(*Compute),
                    Activation(Fused ? Op.Options.get<int8_t>(0) : 0));
  });
}

template <class F> Expected<Kernel> KernelBuilder::compare(F Function) const {
  if (!hasInputs(2))
    return unfit();
  return dispatch<float, int32_t, int64_t, bool>(in(0), [&](auto *Null) {
    using T = std::remove_pointer_t<decltype(Null)>;
    return binary<T, bool>([Function](T A, T B) { return Function(A, B); });
  });
}

template <class T, class F>
Expected<Kernel> KernelBuilder::reduce(T Start, F Function, bool Mean) const {
  if (!hasInputs(2) || !holds<T>(in(0)) || !holds<T>(out()))
    return unfit();
  const std::vector<int32_t> &Shape = in(0).Shape;
  auto Axes = constants(in(1));
  if (!Axes)
    return unfit();
  std::vector<bool> IsReduced(Shape.size());
  for (int32_t Axis : *Axes) {
    auto Index = axis(Axis, Shape.size());
    if (!Index)
      return unfit();
    IsReduced[*Index] = true;
  }
  // The element of the output to which each element of the input belongs.
  Indices Into = {0};
  size_t Outputs = 1;
  for (size_t I = 0; I < Shape.size(); ++I) {
    Indices Next;
    for (uint32_t Begin : Into)
      for (int32_t J = 0; J < Shape[I]; ++J)
        Next.push_back(IsReduced[I] ? Begin : Begin * Shape[I] + J);
    Outputs *= IsReduced[I] ? 1 : Shape[I];
    Into = std::move(Next);
  }
  if (Outputs != out().size() || Into.empty())
    return unfit();
  const T Divisor = Mean ? static_cast<T>(Into.size() / Outputs) : T(1);
  return Kernel([=, Into = std::move(Into), In = &in(0), Out = &out()] {
    T *Result = Out->data<T>();
    std::fill_n(Result, Out->size(), Start);
    for (size_t I = 0; I < Into.size(); ++I)
      Result[Into[I]] = Function(Result[Into[I]], In->data<T>()[I]);
    if (Mean)
      for (size_t I = 0; I < Out->size(); ++I)
        Result[I] = Result[I] / Divisor;
  });
}

Expected<Kernel> KernelBuilder::argMax() const {
  if (!hasInputs(2))
    return unfit();
  auto Axes = constants(in(1));
  auto Axis = Axes && Axes->size() == 1
                  ? axis(Axes->front(), in(0).Shape.size())
                  : std::nullopt;
  if (!Axis)
    return unfit();
  ArrayRef<int32_t> Shape = in(0).Shape;
  const size_t Extent = Shape[*Axis],
               Inner = product(Shape.drop_front(*Axis + 1)),
               Outer = product(Shape.take_front(*Axis));
  if (!Extent || out().size() != Inner * Outer)
    return unfit();
  return dispatch<float, int32_t, int64_t>(in(0), [&](auto *Null) {
    using T = std::remove_pointer_t<decltype(Null)>;
    return dispatch<int32_t, int64_t>(out(), [&](auto *OutNull) {
      using R = std::remove_pointer_t<decltype(OutNull)>;
      return Expected<Kernel>([=, In = &in(0), Out = &out()] {
        for (size_t I = 0; I < Outer * Inner; ++I) {
          const T *First =
              In->data<T>() + I / Inner * Extent * Inner + I % Inner;
          size_t Best = 0;
          for (size_t J = 1; J < Extent; ++J)
            if (First[J * Inner] > First[Best * Inner])
              Best = J;
          Out->data<R>()[I] = static_cast<R>(Best);
        }
      });
    });
  });
}

Expected<Kernel> KernelBuilder::bucketize() const {
  if (!hasInputs(1) || !holds<int32_t>(out()) || in(0).size() != out().size())
    return unfit();
  std::vector<float> Boundaries = Op.Options.numbers<float>(0);
  if (!std::is_sorted(Boundaries.begin(), Boundaries.end()))
    return fail("has boundaries that are not sorted");
  return dispatch<float, int32_t, int64_t>(in(0), [&](auto *Null) {
    using T = std::remove_pointer_t<decltype(Null)>;
    return Expected<Kernel>([Boundaries, In = &in(0), Out = &out()] {
      for (size_t I = 0; I < In->size(); ++I)
        Out->data<int32_t>()[I] =
            std::upper_bound(Boundaries.begin(), Boundaries.end(),
                             In->data<T>()[I]) -
            Boundaries.begin();
    });
  });
}

template <class R, class T> static R castTo(T Value) {
  if constexpr (std::is_floating_point_v<T> && !std::is_floating_point_v<R> &&
                !std::is_same_v<R, bool>) {
    // What does not fit is not defined in C++.
    if (!(Value > static_cast<T>(std::numeric_limits<R>::min())))
      return std::numeric_limits<R>::min();
    if (!(Value < static_cast<T>(std::numeric_limits<R>::max())))
      return std::numeric_limits<R>::max();
  }
  return static_cast<R>(Value);
}

Expected<Kernel> KernelBuilder::cast() const {
  if (!hasInputs(1) || in(0).size() != out().size())
    return unfit();
  return dispatch<float, int32_t, int64_t, bool>(in(0), [&](auto *Null) {
    using T = std::remove_pointer_t<decltype(Null)>;
    return dispatch<float, int32_t, int64_t, bool>(out(), [&](auto *OutNull) {
      using R = std::remove_pointer_t<decltype(OutNull)>;
      return Expected<Kernel>([In = &in(0), Out = &out()] {
        std::transform(In->data<T>(), In->data<T>() + In->size(),
                       Out->data<R>(), castTo<R, T>);
      });
    });
  });
}

/// Joins the inputs along an axis, a new one if \p Packs.
Expected<Kernel> KernelBuilder::concatenate(size_t Axis, bool Packs) const {
  ArrayRef<int32_t> Shape = out().Shape;
  const size_t Outer = product(Shape.take_front(Axis));
  size_t Bytes = 0;
  for (Tensor *Input : Op.Inputs) {
    std::vector<int32_t> Rest = Input->Shape, Expected = out().Shape;
    Expected.erase(Expected.begin() + Axis);
    if (!Packs && Axis < Rest.size())
      Rest.erase(Rest.begin() + Axis);
    if (Input->Type != out().Type || Rest != Expected)
      return unfit();
    Bytes += Input->Bytes.size();
  }
  if (Bytes != out().Bytes.size() || !Outer)
    return unfit();
  return Kernel([Outer, Inputs = Op.Inputs, Out = &out()] {
    char *To = Out->Bytes.data();
    for (size_t I = 0; I < Outer; ++I)
      for (const Tensor *Input : Inputs) {
        const size_t Size = Input->Bytes.size() / Outer;
        const char *From = Input->Bytes.data() + I * Size;
        To = std::copy(From, From + Size, To);
      }
  });
}

/// Gives the first input another shape.
Expected<Kernel> KernelBuilder::copy() const {
  if (Op.Inputs.empty() || !Op.Inputs[0] || !hasOutput() ||
      in(0).Type != out().Type || in(0).Bytes.size() != out().Bytes.size())
    return unfit();
  return Kernel([In = &in(0), Out = &out()] { Out->Bytes = In->Bytes; });
}

Expected<Kernel> KernelBuilder::fullyConnected() const {
  const bool HasBias = Op.Inputs.size() == 3 && Op.Inputs[2];
  if ((Op.Inputs.size() != 2 && Op.Inputs.size() != 3) || !Op.Inputs[0] ||
      !Op.Inputs[1] || !hasOutput())
    return unfit();
  const Tensor *Bias = HasBias ? &in(2) : nullptr;
  if (!holds<float>(in(0)) || !holds<float>(in(1)) || !holds<float>(out()) ||
      in(1).Shape.size() != 2 || Op.Options.get<int8_t>(1) != 0)
    return unfit();
  const size_t Units = in(1).Shape[0], Width = in(1).Shape[1];
  if (!Units || !Width || in(0).size() % Width ||
      out().size() != in(0).size() / Width * Units ||
      (Bias && (!holds<float>(*Bias) || Bias->size() != Units)))
    return unfit();
  Kernel Compute = [=, In = &in(0), Weights = &in(1), Out = &out()] {
    const float *Row = In->data<float>();
    float *To = Out->data<float>();
    for (size_t Left = In->size() / Width; Left; --Left, Row += Width)
      for (size_t Unit = 0; Unit < Units; ++Unit) {
        const float *Weight = Weights->data<float>() + Unit * Width;
        // Four sums, which the processor computes at the same time.
        float Sums[4] = {};
        size_t I = 0;
        for (; I + 4 <= Width; I += 4)
          for (size_t J = 0; J < 4; ++J)
            Sums[J] += Row[I + J] * Weight[I + J];
        for (; I < Width; ++I)
          Sums[0] += Row[I] * Weight[I];
        *To++ = (Sums[0] + Sums[1]) + (Sums[2] + Sums[3]) +
                (Bias ? Bias->data<float>()[Unit] : 0.0f);
      }
  };
  return activate(std::move(Compute), Activation(Op.Options.get<int8_t>(0)));
}

Expected<Kernel> KernelBuilder::gather() const {
  if (!hasInputs(2) || in(0).Type != out().Type || Op.Options.get<int32_t>(1))
    return unfit();
  ArrayRef<int32_t> Shape = in(0).Shape;
  auto Axis = axis(Op.Options.get<int32_t>(0), Shape.size());
  if (!Axis)
    return unfit();
  const size_t Extent = Shape[*Axis], Outer = product(Shape.take_front(*Axis)),
               Size = product(Shape.drop_front(*Axis + 1)) * sizeOf(out().Type);
  if (out().Bytes.size() != Outer * in(1).size() * Size)
    return unfit();
  return dispatch<int32_t, int64_t>(in(1), [&](auto *Null) {
    using T = std::remove_pointer_t<decltype(Null)>;
    return Expected<Kernel>([=, In = &in(0), Which = &in(1), Out = &out()] {
      char *To = Out->Bytes.data();
      for (size_t I = 0; I < Outer; ++I)
        for (size_t J = 0; J < Which->size(); ++J) {
          const T Index = Which->data<T>()[J];
          if (Index < 0 || Index >= T(Extent))
            report_fatal_error("policy: a feature has the value " +
                                   Twine(Index) +
                                   ", and the model has no entry for it",
                               /*gen_crash_diag=*/false);
          const char *From = In->Bytes.data() + (I * Extent + Index) * Size;
          To = std::copy(From, From + Size, To);
        }
    });
  });
}

Expected<Kernel> KernelBuilder::multinomial() const {
  if (!hasInputs(2) || !holds<float>(in(0)) || in(0).Shape.size() != 2 ||
      in(0).Shape[1] < 1 || out().Shape.size() != 2 ||
      out().Shape[0] != in(0).Shape[0])
    return unfit();
  const size_t Actions = in(0).Shape[1], Samples = out().Shape[1];
  return dispatch<int32_t, int64_t>(out(), [&](auto *Null) {
    using T = std::remove_pointer_t<decltype(Null)>;
    return Expected<Kernel>([=, Random = &Random, In = &in(0), Out = &out()] {
      std::vector<double> Weights(Actions);
      for (size_t I = 0; I < Out->size(); ++I) {
        const float *Logits = In->data<float>() + I / Samples * Actions;
        const float Best = *std::max_element(Logits, Logits + Actions);
        for (size_t J = 0; J < Actions; ++J)
          Weights[J] = std::exp(double(Logits[J]) - Best);
        double Left =
            (*Random)() * std::accumulate(Weights.begin(), Weights.end(), 0.0);
        // Rounding must not select an action without a weight.
        size_t Last = Actions - 1, Action = 0;
        while (Last > 0 && !(Weights[Last] > 0))
          --Last;
        while (Action < Last && Left >= Weights[Action])
          Left -= Weights[Action++];
        Out->data<T>()[I] = static_cast<T>(Action);
      }
    });
  });
}

Expected<Kernel> KernelBuilder::randomUniform() const {
  if (!hasInputs(1) || !holds<float>(out()))
    return unfit();
  return Kernel([Random = &Random, Out = &out()] {
    for (float &X : MutableArrayRef<float>(Out->data<float>(), Out->size()))
      X = static_cast<float>((*Random)());
  });
}

Expected<Kernel> KernelBuilder::select() const {
  if (!hasInputs(3) || !holds<bool>(in(0)))
    return unfit();
  // The older operator takes a condition for each row.
  auto If = broadcast(in(0)), Then = broadcast(in(1)), Else = broadcast(in(2));
  if (!If || !Then || !Else || in(1).Type != out().Type ||
      in(2).Type != out().Type ||
      (Op.Code == SELECT && in(0).Shape != in(1).Shape))
    return unfit();
  const size_t Size = sizeOf(out().Type);
  return Kernel([=, If = std::move(*If), Then = std::move(*Then),
                 Else = std::move(*Else), Condition = &in(0), A = &in(1),
                 B = &in(2), Out = &out()] {
    for (size_t I = 0; I < If.size(); ++I) {
      const bool Holds = Condition->data<bool>()[If[I]];
      const char *From = Holds ? A->Bytes.data() + Then[I] * Size
                               : B->Bytes.data() + Else[I] * Size;
      std::copy(From, From + Size, Out->Bytes.data() + I * Size);
    }
  });
}

Expected<Kernel> KernelBuilder::softmax(bool Log) const {
  if (!hasInputs(1) || !holds<float>(in(0)) || !holds<float>(out()) ||
      in(0).Shape.empty() || in(0).Shape.back() < 1 ||
      in(0).size() != out().size())
    return unfit();
  const size_t Width = in(0).Shape.back();
  const float Beta = Log ? 1.0f : Op.Options.get<float>(0);
  return Kernel([=, In = &in(0), Out = &out()] {
    for (size_t Row = 0; Row < In->size(); Row += Width) {
      const float *From = In->data<float>() + Row;
      float *To = Out->data<float>() + Row;
      const float Best = *std::max_element(From, From + Width);
      float Total = 0;
      for (size_t I = 0; I < Width; ++I)
        Total += To[I] = std::exp((From[I] - Best) * Beta);
      for (size_t I = 0; I < Width; ++I)
        To[I] = Log ? From[I] - Best - std::log(Total) : To[I] / Total;
    }
  });
}

Expected<Kernel> KernelBuilder::tile() const {
  auto Multiples = hasInputs(2) ? constants(in(1)) : std::nullopt;
  if (!Multiples || in(0).Type != out().Type ||
      in(0).Shape.size() != out().Shape.size() ||
      in(0).Shape.size() != Multiples->size())
    return unfit();
  // The element of the input for each element of the output.
  Indices From = {0};
  size_t Stride = in(0).size();
  for (auto [Extent, Outer, Multiple] :
       zip(in(0).Shape, out().Shape, *Multiples)) {
    if (Extent < 1 || Multiple < 1 || int64_t(Extent) * Multiple != Outer)
      return unfit();
    Stride /= Extent;
    Indices Next;
    for (uint32_t Begin : From)
      for (int32_t J = 0; J < Outer; ++J)
        Next.push_back(Begin + J % Extent * Stride);
    From = std::move(Next);
  }
  const size_t Size = sizeOf(out().Type);
  return Kernel([=, From = std::move(From), In = &in(0), Out = &out()] {
    for (size_t I = 0; I < From.size(); ++I)
      std::copy_n(In->Bytes.data() + From[I] * Size, Size,
                  Out->Bytes.data() + I * Size);
  });
}

Expected<Kernel> KernelBuilder::build() {
  switch (Op.Code) {
  case ADD:
    return arithmetic([](auto A, auto B) {
      return wrapping([](auto X, auto Y) { return X + Y; }, A, B);
    });
  case SUB:
    return arithmetic([](auto A, auto B) {
      return wrapping([](auto X, auto Y) { return X - Y; }, A, B);
    });
  case MUL:
    return arithmetic([](auto A, auto B) {
      return wrapping([](auto X, auto Y) { return X * Y; }, A, B);
    });
  case DIV:
    return hasInputs(2) && holds<float>(in(0))
               ? arithmetic([](auto A, auto B) { return A / B; })
               : unfit();
  // As TensorFlow Lite compares, which matters for NaN.
  case MINIMUM:
    return arithmetic([](auto A, auto B) { return A < B ? A : B; });
  case MAXIMUM:
    return arithmetic([](auto A, auto B) { return A > B ? A : B; });
  case POW:
    return hasInputs(2) && holds<float>(in(0))
               ? arithmetic([](auto A, auto B) { return std::pow(A, B); })
               : unfit();
  case SQUARED_DIFFERENCE:
    return arithmetic([](auto A, auto B) {
      return wrapping([](auto X, auto Y) { return (X - Y) * (X - Y); }, A, B);
    });
  case EQUAL:
    return compare([](auto A, auto B) { return A == B; });
  case NOT_EQUAL:
    return compare([](auto A, auto B) { return A != B; });
  case LESS:
    return compare([](auto A, auto B) { return A < B; });
  case LESS_EQUAL:
    return compare([](auto A, auto B) { return A <= B; });
  case GREATER:
    return compare([](auto A, auto B) { return A > B; });
  case GREATER_EQUAL:
    return compare([](auto A, auto B) { return A >= B; });
  case LOGICAL_AND:
    return compare([](auto A, auto B) { return A && B; });
  case LOGICAL_OR:
    return compare([](auto A, auto B) { return A || B; });
  case LOGICAL_NOT:
    return unary<bool>([](bool X) { return !X; });
  case ABS:
    return unary<float>([](float X) { return std::abs(X); });
  case NEG:
    return unary<float>([](float X) { return -X; });
  case EXP:
    return unary<float>([](float X) { return std::exp(X); });
  case LOG:
    return unary<float>([](float X) { return std::log(X); });
  case SQRT:
    return unary<float>([](float X) { return std::sqrt(X); });
  case RSQRT:
    return unary<float>([](float X) { return 1 / std::sqrt(X); });
  case SQUARE:
    return unary<float>([](float X) { return X * X; });
  case FLOOR:
    return unary<float>([](float X) { return std::floor(X); });
  case SIGN:
    return unary<float>([](float X) { return float((X > 0) - (X < 0)); });
  case TANH:
    return unary<float>([](float X) { return std::tanh(X); });
  case LOGISTIC:
    return unary<float>([](float X) { return 1 / (1 + std::exp(-X)); });
  case RELU:
    return unary<float>([](float X) { return std::max(X, 0.0f); });
  case SUM:
    return hasInputs(2)
               ? dispatch<float, int32_t, int64_t>(
                     in(0),
                     [&](auto *Null) {
                       using T = std::remove_pointer_t<decltype(Null)>;
                       return reduce<T>(0, [](T A, T B) {
                         return wrapping([](auto X, auto Y) { return X + Y; },
                                         A, B);
                       });
                     })
               : unfit();
  case MEAN:
    return reduce<float>(0, std::plus<float>(), /*Mean=*/true);
  case REDUCE_MAX:
    return reduce<float>(-std::numeric_limits<float>::infinity(),
                         [](float A, float B) { return std::max(A, B); });
  case REDUCE_ANY:
    return reduce<bool>(false, [](bool A, bool B) { return A || B; });
  case RESHAPE:
  case SQUEEZE:
  case EXPAND_DIMS:
    return copy();
  case CONCATENATION:
  case PACK: {
    const bool Packs = Op.Code == PACK;
    if (!hasInputs(Op.Inputs.size()))
      return unfit();
    auto Axis =
        axis(Op.Options.get<int32_t>(Packs ? 1 : 0), out().Shape.size());
    if (!Axis)
      return unfit();
    auto Compute = concatenate(*Axis, Packs);
    return Compute && !Packs ? activate(std::move(*Compute),
                                        Activation(Op.Options.get<int8_t>(1)))
                             : std::move(Compute);
  }
  case ARG_MAX:
    return argMax();
  case BUCKETIZE:
    return bucketize();
  case CAST:
    return cast();
  case FULLY_CONNECTED:
    return fullyConnected();
  case GATHER:
    return gather();
  case LOG_SOFTMAX:
    return softmax(/*Log=*/true);
  case MULTINOMIAL:
    return multinomial();
  case RANDOM_UNIFORM:
    return randomUniform();
  case SELECT:
  case SELECT_V2:
    return select();
  case SOFTMAX:
    return softmax(/*Log=*/false);
  case TILE:
    return tile();
  default:
    return fail("is not supported");
  }
}

Expected<Kernel> mlgo::tflite::makeKernel(const Operator &Op,
                                          const Draw &Random) {
  return KernelBuilder(Op, Random).build();
}
