// A compiler without an IR2Vec vocabulary has no embeddings.
#include "ir2vec/IR2VecEmbedding.h"

#include "llvm/Support/ErrorHandling.h"

const unsigned mlgo::EmbeddingDimension = 0;

void mlgo::countEntities(const llvm::Instruction &, EntityCounts &, int32_t) {
  llvm_unreachable("no vocabulary");
}

void mlgo::embed(const EntityCounts &, float *) {
  llvm_unreachable("no vocabulary");
}
