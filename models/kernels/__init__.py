"""Softmax attention on tensors: `reference` is the readable dense form, `fused` never builds a [query, key] tensor of weights."""
