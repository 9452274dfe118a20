"""Llama 3: grouped queries, RMSNorm, SwiGLU, rotary positions."""

from __future__ import annotations

from remat_explorer.models.large.decoder import DecoderShape, decoder_entry

VOCABULARY, THETA, EPSILON, GROUPS = 128256, 500000.0, 1e-5, 8
SEQUENCE = 8192  # Grattafiori et al., "The Llama 3 herd of models", 2024, section 3.4.1

# Table 3 of that paper; the 1B model of Llama 3.2 by config.json of meta-llama/Llama-3.2-1B.
SHAPES = {
    "llama3.2_1b": DecoderShape(VOCABULARY, 2048, 16, 32, GROUPS, 8192, THETA, EPSILON, tied=True),
    "llama3_8b": DecoderShape(VOCABULARY, 4096, 32, 32, GROUPS, 14336, THETA, EPSILON),
    "llama3_70b": DecoderShape(VOCABULARY, 8192, 80, 64, GROUPS, 28672, THETA, EPSILON),
}
ENTRIES = {name: decoder_entry(shape, SEQUENCE) for name, shape in SHAPES.items()}
