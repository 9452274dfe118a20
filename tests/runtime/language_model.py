"""A small Llama with its examples, and packages that tests of other libraries' loops need."""

import importlib
import os
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, default_collate


def needed(name: str) -> Any:
    """A package of the extra "test"; without it, tests are skipped, but not in CI."""
    if os.environ.get("CI"):
        return importlib.import_module(name)
    return pytest.importorskip(name, reason=f"{name} is missing, which the extra 'test' brings")


class Needed:
    """A package that is loaded when a test asks for something of it, not when pytest looks at what a module holds."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("_", "pytest")):
            raise AttributeError(name)
        return getattr(needed(self._name), name)


class Examples(Dataset[dict[str, Any]]):
    """Words with a mask for the padding at their end, and a column that no model takes."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> dict[str, Any]:
        words = torch.randint(3, 80, (16,), generator=torch.Generator().manual_seed(index))
        mask = (torch.arange(16) < 9 + index % 7).long()
        return {"input_ids": words, "attention_mask": mask, "labels": words.masked_fill(mask == 0, -100), "of": index}


def batch() -> dict[str, torch.Tensor]:
    inputs = default_collate([Examples()[index] for index in range(2)])
    del inputs["of"]
    return inputs


def llama() -> Any:
    """A Llama of one block; always with the same weights."""
    transformers = Needed("transformers")
    torch.manual_seed(0)
    parts = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}
    made = transformers.LlamaConfig(vocab_size=90, intermediate_size=32, max_position_embeddings=32, **parts)
    return transformers.LlamaForCausalLM(made)


def equal_weights(first: Any, second: Any) -> bool:
    mine, theirs = first.state_dict(), second.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(tensor, theirs[name]) for name, tensor in mine.items())
