#include "ir2vec/IR2VecEmbedding.h"

#include "IR2VecVocabulary.h"
#include "llvm/Analysis/IR2Vec.h"
#include "llvm/IR/InstrTypes.h"

#include <vector>

using namespace llvm;
using namespace mlgo;
using ir2vec::Vocabulary;

static const size_t NumEntities = Vocabulary::getCanonicalSize();

const unsigned mlgo::EmbeddingDimension = VocabularyDimension;

void mlgo::countEntities(const Instruction &I, EntityCounts &Counts,
                         int32_t Sign) {
  if (Counts.empty())
    Counts.resize(NumEntities);
  Counts[Vocabulary::getIndex(I.getOpcode())] += Sign;
  Counts[Vocabulary::getIndex(I.getType()->getTypeID())] += Sign;
  for (const Use &Operand : I.operands())
    Counts[Vocabulary::getIndex(*Operand.get())] += Sign;
  if (const auto *Comparison = dyn_cast<CmpInst>(&I))
    Counts[Vocabulary::getIndex(Comparison->getPredicate())] += Sign;
}

/// Returns the vocabulary's vectors times the weights of their kinds, in LLVM's
/// order of entities: double [NumEntities][VocabularyDimension]. Entities that
/// the vocabulary lacks have zeros, as in LLVM.
static std::vector<double> weightedVectors() {
  std::vector<double> Vectors(NumEntities * VocabularyDimension);
  for (size_t I = 0; I < NumEntities; ++I) {
    const StringRef Key = Vocabulary::getStringKey(I);
    const size_t FirstType = Vocabulary::MaxOpcodes;
    const size_t FirstOperand = FirstType + Vocabulary::MaxCanonicalTypeIDs;
    const double Weight = I < FirstType      ? ir2vec::OpcWeight
                          : I < FirstOperand ? ir2vec::TypeWeight
                                             : ir2vec::ArgWeight;
    for (const VocabularyEntry &Entry : VocabularyEntries)
      if (Key == Entry.Key)
        for (unsigned J = 0; J < VocabularyDimension; ++J)
          Vectors[I * VocabularyDimension + J] = Weight * Entry.Vector[J];
  }
  return Vectors;
}

void mlgo::embed(const EntityCounts &Counts, float *Embedding) {
  static const std::vector<double> Vectors = weightedVectors();
  double Sums[VocabularyDimension] = {};
  for (size_t I = 0; I < Counts.size(); ++I)
    if (Counts[I])
      for (unsigned J = 0; J < VocabularyDimension; ++J)
        Sums[J] += Counts[I] * Vectors[I * VocabularyDimension + J];
  for (unsigned J = 0; J < VocabularyDimension; ++J)
    Embedding[J] = static_cast<float>(Sums[J]);
}
