"""Names of strategies as the explorer shows them."""

from __future__ import annotations

KEEPS = "keep everything"
WORDS = {"checkpoint-all": f"{KEEPS} (checkpoint-all)"}


def strategy_words(strategy: str) -> str:
    """A strategy by its name, and that of the one that keeps everything in plain words as well.

    >>> strategy_words("optimal"), strategy_words("checkpoint-all")
    ('optimal', 'keep everything (checkpoint-all)')
    """
    return WORDS.get(strategy, strategy)
