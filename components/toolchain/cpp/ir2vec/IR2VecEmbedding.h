// IR2Vec's symbolic embeddings of functions, features of an inlining decision
// where a vocabulary was built in (mlgo toolchain --ir2vec-vocab; LLVM 22).
//
// The symbolic embedding of a function is a sum over its instructions of the
// vocabulary's vectors of their opcodes, types, operands and predicates
// (llvm/Analysis/IR2Vec.h). So it is the product of the vocabulary with how
// often each of these entities occurs. The counts are integers, which
// FunctionProperties updates exactly when a call is inlined; LLVM's embedder
// visits the whole function and allocates a vector for each instruction.
#ifndef MLGO_IR2VEC_EMBEDDING_H
#define MLGO_IR2VEC_EMBEDDING_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/Instruction.h"

#include <cstdint>

namespace mlgo {

/// For each entity of the vocabulary, in LLVM's order, how often it occurs.
/// Empty without a vocabulary, and if no instruction was counted.
using EntityCounts = llvm::SmallVector<int32_t, 0>;

/// Number of elements of an embedding; 0 without a vocabulary
/// (NoIR2VecEmbedding.cpp), and then the functions below must not be called.
extern const unsigned EmbeddingDimension;

/// Adds \p Sign to the counts of the entities of \p I.
void countEntities(const llvm::Instruction &I, EntityCounts &Counts,
                   int32_t Sign);

/// Writes the embedding of a function with these counts into
/// \p Embedding[EmbeddingDimension].
void embed(const EntityCounts &Counts, float *Embedding);

} // namespace mlgo

#endif
