"""Figures of the package's layout, from its imports: how many rooms one has to open, and how their walls hold.

    python tools/house.py                                         # every figure
    python tools/house.py --list "modules with one importer"      # the files behind one

A module is a file other than __init__.py. Imports within functions, for types, and by import_module("...") with a
literal count like any other. A name that an __init__.py hands on is its folder's, not a file's inside.
"""

from __future__ import annotations

import argparse
import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import networkx

PACKAGE = Path(__file__).parents[1] / "remat_explorer"


def figures(package: Path = PACKAGE) -> dict[str, list[str]]:
    """Each figure with the files that it counts, by their dotted names."""
    files = {_dotted(path, package): path for path in sorted(package.rglob("*.py"))}
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in files.items()}
    rooms = {name for name, path in files.items() if path.name == "__init__.py"}
    handed_on = {name: _names_in(trees[name]) for name in rooms}
    imports = networkx.DiGraph()
    imports.add_nodes_from(files)
    for name in files:
        targets = (_longest(target, files) for target in _imported(trees[name], name, name in rooms, handed_on))
        imports.add_edges_from((name, target) for target in targets if target not in ("", name))
    modules = [name for name in files if name not in rooms]
    lines = {name: files[name].read_text(encoding="utf-8").count("\n") for name in modules}
    times = Counter(name.rpartition(".")[2] for name in modules)
    circles = [group for group in networkx.strongly_connected_components(imports) if len(group) > 1]

    def room(name: str) -> str:
        return name if name in rooms else name.rpartition(".")[0]

    def top(name: str) -> list[str]:
        """The top-level folder; none for a file beside these."""
        return room(name).split(".")[1:2]

    return {
        "modules": modules,
        "modules under 60 lines": [name for name in modules if lines[name] < 60],
        "modules over 600 lines": [name for name in modules if lines[name] > 600],
        "modules with one importer": [name for name in modules if imports.in_degree(name) == 1],
        "modules imported from another folder": [
            name for name in modules if any(room(other) != room(name) for other in imports.predecessors(name))
        ],
        "modules imported from another top-level folder": [
            name
            for name in modules
            if any(top(other) != top(name) for other in imports.predecessors(name)) and top(name)
        ],
        "names of files that occur twice or more": sorted(stem for stem, count in times.items() if count > 1),
        "files in circles": sorted(name for group in circles for name in group),
    }


def _dotted(path: Path, package: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _longest(target: str, files: dict[str, Path]) -> str:
    """The file that a dotted name leads to: itself, or the module that has it as a name."""
    while target and target not in files:
        target = target.rpartition(".")[0]
    return target


def _names_in(tree: ast.Module) -> set[str]:
    """What an __init__.py defines or hands on."""
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    given = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return names | {alias.asname or alias.name for node in given for alias in node.names}


def _imported(tree: ast.Module, name: str, is_room: bool, handed_on: dict[str, set[str]]) -> Iterator[str]:
    """Dotted names that a file imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = name.split(".")[: len(name.split(".")) - node.level + is_room]
                base = ".".join([*above, *filter(None, [base])])
            for alias in node.names:
                yield base if alias.name in handed_on.get(base, ()) else f"{base}.{alias.name}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield first.value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", nargs="?", type=Path, default=PACKAGE)
    parser.add_argument("--list", metavar="FIGURE", help="the files behind a figure")
    options = parser.parse_args()
    found = figures(options.package.resolve())
    if options.list:
        print("\n".join(found[options.list]))
    else:
        print("\n".join(f"{len(names):>6,} {figure}" for figure, names in found.items()))


if __name__ == "__main__":
    main()
