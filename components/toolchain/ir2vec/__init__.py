"""IR2Vec's embeddings of functions as features of a plugin, experimental: no gain on the corpora tried."""
