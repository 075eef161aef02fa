"""How a model knows where a token stands: learned embeddings added to the input, or rotation of queries and keys."""
