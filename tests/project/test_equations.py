"""Every row of docs/equations.md resolves: file and function are there, and name the number that the row is about."""

import ast
import re
from dataclasses import dataclass

import pytest

from tests.project.pages import ROOT, page

CHECKMATE = (  # what the paper numbers, in its order
    *("(1a)", "(1b)", "(1c)", "(1d)", "(1e)", "(1f)", "(2)", "(3)", "(4)", "(5)"),
    *("Theorem 4.1", "Lemma 4.1", "Lemma 4.2", "(6)", "(7a)", "(7b)", "(7c)", "(8a)", "(8b)", "(8c)", "(9)"),
    *("Algorithm 1", "Algorithm 2", "(10)", "(11)", "Definition C.1"),
)
MONET = ("Algorithm 1", "Algorithm 2", *(f"({number})" for number in range(1, 17)))
NUMBERED = {"Checkmate, MLSys 2020": CHECKMATE, "MONeT, ICLR 2021": MONET}
NAMES = {  # by which a file can call the paper that its numbers are of
    "Checkmate, MLSys 2020": "Checkmate|Jain",
    "Checkmate, arXiv 1910.02653v1": "1910.02653v1",
    "MONeT, ICLR 2021": "MONeT|Shah",
}
ELSEWHERE = "The same rules in other places"
FILES = dict(re.findall(r"^\[([\w.]+)\]: \.\./([\w./]+)$", page("docs/equations.md"), re.MULTILINE))  # by their names


@dataclass(frozen=True)
class Row:
    """A row of the page, and the headings that it stands under."""

    paper: str
    table: str
    number: str
    where: str
    here: str

    @property
    def path(self) -> str:
        """The file, from the root of the repository; "" where the code does not have it."""
        found = re.fullmatch(r"\[([\w.]+)\] `[\w.]+`", self.where)
        return FILES[found[1]] if found else ""

    @property
    def name(self) -> str:
        """The function, class or method."""
        return self.where.split("`")[1]


def rows() -> list[Row]:
    """The rows of all tables."""
    found, paper, table = [], "", ""
    for line in page("docs/equations.md").splitlines():
        if line.startswith("## "):
            paper, table = line[3:], ""
        elif line.startswith("### "):
            table = line[4:]
        elif line.startswith("| ") and not line.startswith("| number |"):
            number, _, where, here = (cell.strip() for cell in line.strip("|").split("|"))
            found.append(Row(paper, table, number, where, here))
    return found


ROWS = rows()
IN_THE_CODE = [row for row in ROWS if row.path]


def definition(row: Row) -> tuple[list[ast.Module | ast.ClassDef], ast.AST | None]:
    """The module and classes around what a row names, and that itself; None if it is not there."""
    module = ast.parse(page(row.path))
    around: list[ast.Module | ast.ClassDef] = []
    node: ast.AST | None = module
    for part in row.name.split("."):
        if not isinstance(node, ast.Module | ast.ClassDef):
            return around, None
        around.append(node)
        named = (one for one in node.body if isinstance(one, ast.FunctionDef | ast.ClassDef) and one.name == part)
        node = next(named, None)
    return around, node


def source(row: Row) -> str:
    """The source of what a row names, with the docstrings of the module and the class around it, on one line."""
    around, node = definition(row)
    assert node is not None
    documents = [ast.get_docstring(one) or "" for one in around]
    return " ".join(" ".join((*documents, ast.get_source_segment(page(row.path), node) or "")).split())


@pytest.mark.parametrize("paper", NUMBERED)
def test_the_page_has_everything_that_a_paper_numbers_once_and_in_its_order(paper: str) -> None:
    listed = [row.number for row in ROWS if row.paper == paper and not row.table]
    assert tuple(number for number in listed if not re.match("section|appendix", number)) == NUMBERED[paper]


def test_every_row_names_a_function_that_is_there() -> None:
    assert len(IN_THE_CODE) > len(CHECKMATE) + len(MONET)
    missing = [
        row.where
        for row in IN_THE_CODE
        if not (ROOT / row.path).is_file()
        or f"[{row.path.rpartition('/')[2]}]" not in row.where
        or definition(row)[1] is None
    ]
    assert missing == []


def test_the_code_of_every_row_names_its_number() -> None:
    unnamed = [
        f"{row.number}: {row.where}"
        for row in IN_THE_CODE
        if not re.search(rf"{re.escape(row.number)}(?!\.?\d)", source(row), re.IGNORECASE)
    ]
    assert unnamed == []


def test_every_file_says_which_paper_its_numbers_are_of() -> None:
    assert [row.where for row in IN_THE_CODE if not re.search(NAMES[row.paper], page(row.path))] == []


def test_what_the_code_does_not_have_says_so_and_why() -> None:
    assert [row.number for row in ROWS if not row.path and (row.where != "not in the code" or not row.here)] == []


def test_rows_of_other_places_are_of_numbers_that_a_paper_has() -> None:
    elsewhere = [row for row in ROWS if row.table == ELSEWHERE and not row.number.startswith("section")]
    assert elsewhere
    assert [row.number for row in elsewhere if row.number not in NUMBERED[row.paper]] == []
