"""Qwen: as Llama, with biases of queries, keys and values (2.5), or with normalized queries and keys (3)."""

from __future__ import annotations

from remat_explorer.models.large.decoder import DecoderShape, decoder_entry

VOCABULARY, THETA, EPSILON = 151936, 1e6, 1e-6
SEQUENCE = 4096  # of most of the training: Qwen2.5 technical report, section 3.3; Qwen3 technical report, section 3.2

# Qwen2.5 technical report, 2024, table 1, and Qwen3 technical report, 2025, table 1; widths and the rest by config.json
# of Qwen/Qwen2.5-0.5B and Qwen/Qwen3-8B.
SHAPES = {
    "qwen2.5_0.5b": DecoderShape(VOCABULARY, 896, 24, 14, 2, 4864, THETA, EPSILON, biases="qkv", tied=True),
    "qwen3_8b": DecoderShape(VOCABULARY, 4096, 36, 32, 8, 12288, THETA, EPSILON, head=128, normalized=True),
}
ENTRIES = {name: decoder_entry(shape, SEQUENCE) for name, shape in SHAPES.items()}
