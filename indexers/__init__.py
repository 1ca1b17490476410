"""Arrays: postings, BM25, TF-IDF, CSR graphs, PPR, traversal, presets."""
