"""What a page of documentation shows: blocks of code, files and links."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def page(path: str) -> str:
    """The text of a page, such as "README.md"."""
    return (ROOT / path).read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [code for name, code in found if name == language]


def named_files(text: str) -> list[str]:
    """Paths of the repository that a text names between backticks."""
    return re.findall(r"`((?:remat_explorer|reproduction|notebooks|tests|docs|benchmarks)/[\w./]*)`", text)


def links(text: str) -> list[str]:
    """Targets of links that stay within the repository, without what follows #."""
    targets = (
        "".join(target).partition("#")[0]
        for target in re.findall(r"\]\(([^)]+)\)|^\[[^\]]+\]: (\S+)$", text, re.MULTILINE)
    )
    return [target for target in targets if target and "://" not in target]


def is_target(name: str) -> bool:
    """Whether make knows how to make it, alone or beside others of one rule."""
    return bool(re.search(rf"^(?:[\w ]+ )?{name}(?: [\w ]+)?:", page("Makefile"), re.MULTILINE))
