"""Where a notebook first uses a word of the glossary, and whether it is linked there."""

from __future__ import annotations

import re

from nbformat.notebooknode import NotebookNode

# The words by their anchors, as regular expressions; upper bounds, branch and bound, floating-point operations and the
# compiler's activation memory budget are other things.
WORDS = {
    "activation": r"activations?(?! memory)",
    "lower-bound": r"(?<!upper )(?<!branch and )(?:lower )?bounds?",
    "budget": r"(?<!memory )budgets?(?! \d)",
    "checkpoint": r"checkpoints?(?!-)",
    "checkpoint-all": r"checkpoint-all|keep(?:ing)? everything",
    "features": r"features",
    "gap": r"(?<!integrality )gaps?",
    "implementation": r"implementations?",
    "integrality-gap": r"integrality gaps?",
    "operation": r"(?<!floating-point )operations?",
    "overhead": r"overheads?",
    "peak": r"peaks?",
    "plan": r"plans?",
    "r": r"(?-i:R)",
    "relaxation": r"relaxations?",
    "rematerialization": r"rematerialization",
    "resident": r"resident",
    "s": r"(?-i:S)",
    "schedule": r"schedules?",
    "stage": r"stages?",
    "statement": r"statements?",
    "status": r"status",
    "strategy": r"strateg(?:y|ies)",
    "u": r"(?-i:U)(?!-)",
    "value": r"values?",
    "workspace": r"workspaces?",
}
OTHERWISE = {"05": {"gap"}}  # there a gap is also a stage without a value that is there before and after it
PYTORCHS = "*checkpoint* has PyTorch's meaning"  # said by notebooks in which the word has another meaning throughout
LINK = re.compile(r"\[([^\]]*)\]\(\.\./docs/glossary\.md#([^)]+)\)")


def prose(notebook: NotebookNode) -> str:
    """What a person wrote in a notebook: its texts, without what `make pictures` puts below code."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "markdown" and "picture" not in cell.metadata]
    return "\n\n".join(cell.source for cell in cells)


def not_linked(text: str, number: str) -> list[str]:
    """Anchors of the words whose first use is not their link.

    Headings, formulas, code and the titles of other pages are no uses; R, S and U alone are words, and so is the
    strategy `checkpoint-all`.

    Args:
        text: as `prose` gives it.
        number: of the notebook, such as "04b".
    """
    apart = OTHERWISE.get(number, set()) | ({"checkpoint"} if PYTORCHS in text else set())
    for pattern, kept in (
        (r"^#.*$", ""),
        (r"\$\$.*?\$\$", ""),
        (r"\$([RSU])\$", r"\1"),
        (r"\$[^$]*\$", ""),
        (r"`(checkpoint-all)`", r"\1"),
        (r"`[^`]*`", ""),
        (r"!?\[[^\]]*\]\((?!\.\./docs/glossary\.md#)[^)]*\)", ""),
        (r"\s+", " "),
    ):
        text = re.sub(pattern, kept, text, flags=re.DOTALL if ".*?" in pattern else re.MULTILINE)
    links = {link.span(1): link.group(2) for link in LINK.finditer(text)}
    shown = re.sub(r"\]\([^)]*\)", lambda link: " " * len(link.group()), text)
    found = []
    for anchor, word in WORDS.items():
        use = re.search(rf"\b(?:{word})\b", shown, re.IGNORECASE)
        if use and anchor not in apart:
            inside = [of for (begin, end), of in links.items() if begin <= use.start() and use.end() <= end]
            if inside != [anchor]:
                found.append(anchor)
    return found
