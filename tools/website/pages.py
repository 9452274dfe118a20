"""The pages of the site as Sphinx reads them: README and docs, notebooks with outputs, papers, and the API."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import nbformat
from nbformat.notebooknode import NotebookNode

from reproduction.arena_page import arena_page
from reproduction.judge import Verdict
from tools.website.outputs import framed, shown
from tools.website.papers import item_pages, linked_keys, runs_page

ROOT = Path(__file__).parents[2]
STATIC = Path(__file__).parent / "static"
LINK = re.compile(r"(\]\(|^\[[^\]]+\]: )([^)#\s]+)((?:#[^)\s]*)?(?:\)|$))", re.MULTILINE)
TOP = {"README.md": "index.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "CHANGELOG.md": "CHANGELOG.md"}
PLACES = """
```{{toctree}}
:hidden:
:caption: {caption}
{options}
{entries}
```
"""
API = """# API

Everything that `import remat_explorer as rx` gives, by its name.

"""
Run = Callable[[NotebookNode], tuple[NotebookNode, dict[str, str]]]


def write_pages(folder: Path, run: Run, papers: Mapping[str, NotebookNode]) -> None:
    """Write every page, and what pages link to.

    Args:
        folder: of the sources; what is there is replaced.
        run: gives a notebook its outputs and the live pages of its explorers.
        papers: notebooks that the repository has not, by the name of their page.
    """
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "_static" / "live").mkdir(parents=True)
    shutil.copytree(STATIC, folder / "_static", dirs_exist_ok=True)
    _write_plotly(folder / "_static")
    for name, target in TOP.items():
        _write_text(folder / target, (ROOT / name).read_text("utf-8"), ROOT / name, folder)
    for path in sorted((ROOT / "docs").glob("*.md")):
        _write_text(folder / "docs" / path.name, path.read_text("utf-8"), path, folder)
    _write_arena(folder)
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        _write_notebook(folder, f"notebooks/{path.name}", run(nbformat.read(path, as_version=4)))
    _write_papers(folder, run, papers)
    (folder / "api.md").write_text(API + "\n".join(_api()), "utf-8")
    with (folder / "index.md").open("a", encoding="utf-8") as index:
        index.writelines(_places())


def _places() -> Iterable[str]:
    yield PLACES.format(caption="Notebooks", options=":glob:", entries="notebooks/*")
    yield PLACES.format(caption="To read on", options=":glob:", entries="docs/*")
    yield PLACES.format(caption="Reference", options="", entries="api\nCONTRIBUTING\nCHANGELOG")


def _api() -> Iterable[str]:
    import remat_explorer as rx

    for name in sorted(rx.__all__):
        found = getattr(rx, name)
        if isinstance(found, type):
            kind, options = "autoclass", ":members:\n"
        elif callable(found):
            kind, options = "autofunction", ""
        else:
            kind, options = "automodule", ":members:\n:no-index:\n"
        module = found.__name__ if kind == "automodule" else f"remat_explorer.{name}"
        yield f"## {name}\n\n```{{eval-rst}}\n.. {kind}:: {module}\n{_indented(options)}```\n"


def _indented(lines: str) -> str:
    return "".join(f"   {line}\n" for line in lines.splitlines())


def _write_text(target: Path, text: str, source: Path, folder: Path) -> None:
    """A page whose links lead to pages of the site, or to copies of the files that they name."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(_linked(text, source, folder), "utf-8")


def _linked(text: str, source: Path, folder: Path) -> str:
    def replaced(match: re.Match[str]) -> str:
        before, place, after = match.groups()
        if "://" in place or place.startswith("mailto:"):
            return match[0]
        path = (source.parent / place).resolve()
        if path == ROOT / "README.md":
            return f"{before}{place.removesuffix('README.md')}index.md{after}"
        if path.is_file() and path.suffix not in {".md", ".ipynb"}:
            copy = folder / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
        return match[0]

    return LINK.sub(replaced, text)


def _write_notebook(folder: Path, name: str, found: tuple[NotebookNode, dict[str, str]]) -> None:
    notebook, pages = found
    stem = Path(name).stem
    live = {}
    for number, (model, page) in enumerate(pages.items(), start=1):
        live[model] = f"../_static/live/{stem}-{number}.html"
        (folder / "_static" / "live" / f"{stem}-{number}.html").write_text(page, "utf-8")
    notebook = shown(notebook, live)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = _linked(cell.source, ROOT / name, folder)
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, target)


def _write_papers(folder: Path, run: Run, papers: Mapping[str, NotebookNode]) -> None:
    """A page for each item of the papers and one for MONeT's runs, with links from the page of both papers."""
    for name, notebook in papers.items():
        executed, live = run(notebook)
        for page, part in item_pages(name, executed).items():
            _write_notebook(folder, f"papers/{page}.ipynb", (part, live))
    (folder / "papers" / "monet-runs.md").write_text(runs_page(), "utf-8")
    text = folder / "docs" / "papers.md"
    text.write_text(linked_keys(text.read_text("utf-8"), folder), "utf-8")


def _write_arena(folder: Path) -> None:
    """The arena's page of curves and rows, made of its file of results, at the end of the page that tells of it."""
    results = json.loads((ROOT / "benchmarks" / "results" / "arena.json").read_text("utf-8"))
    known = results["details"]
    verdicts = [Verdict.from_document(one) for entry in known["graphs"].values() for one in entry["verdicts"]]
    about = [(name, str(value)) for name, value in results["machine"].items()]
    page = arena_page(verdicts, known["executed"], known["reported"], about)
    (folder / "_static" / "live" / "arena.html").write_text(page, "utf-8")
    with (folder / "docs" / "arena.md").open("a", encoding="utf-8") as text:
        text.write(f"\n## All curves and rows\n\n{framed('../_static/live/arena.html', 'The arena')}\n")


def _write_plotly(static: Path) -> None:
    from plotly.offline import get_plotlyjs

    (static / "plotly.min.js").write_text(get_plotlyjs(), "utf-8")
