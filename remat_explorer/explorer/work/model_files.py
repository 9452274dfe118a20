"""Model files of the working directory: which there are, and how one of them is loaded."""

from __future__ import annotations

import ast
import contextlib
import re
from pathlib import Path

from remat_explorer.errors import ModelError, RematError
from remat_explorer.explorer.state.implementations import kinds_to_capture
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.work.loading import Inputs, Loaded
from remat_explorer.model_source import as_model_errors, load_model_file

FUNCTION = "make_model"
LISTED, LOOKED_AT, LARGEST = 20, 300, 500_000  # files at most, files that are opened at most, bytes of a file at most
DEFINITION = re.compile(rf"^(?:async\s+)?def\s+{FUNCTION}\b", re.MULTILINE)


def list_model_files(folder: Path) -> list[str]:
    """Files of a folder that define `make_model`, as "file.py:make_model", in alphabetical order.

    Nothing is imported or run; a file with a syntax error is listed, so that choosing it tells the line.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = Path(folder, "net.py").write_text("def make_model(): ...")
    ...     written = Path(folder, "other.py").write_text("def test(): ...")
    ...     list_model_files(Path(folder))
    ['net.py:make_model']
    """
    try:
        files = sorted(folder.glob("*.py"))[:LOOKED_AT]
    except OSError:
        return []
    names = []
    for file in files:
        with contextlib.suppress(OSError):
            if file.is_file() and file.stat().st_size <= LARGEST and _defines(file.read_text("utf-8", "replace")):
                names.append(f"{file.name}:{FUNCTION}")
        if len(names) == LISTED:
            break
    return names


def _defines(source: str) -> bool:
    if FUNCTION not in source:
        return False
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return DEFINITION.search(source) is not None
    return any(isinstance(node, ast.FunctionDef) and node.name == FUNCTION for node in body)


def from_file(state: State) -> Loaded:
    """What the function of the state's model, "path/to/file.py:function", makes; the file is read anew.

    Raises:
        ModelError: with file and line, if the file, its function, or the model on its inputs raises.
        UnknownNameError: if the file has no such function.
    """
    from remat_explorer.capture import capture

    text = state.model if not state.model.endswith(".py") else f"{state.model}:{FUNCTION}"
    made = load_model_file(text)
    path, inputs = Path(text.rpartition(":")[0]), Inputs(made.module, made.make_args(), made.kwargs, made.loss)
    inputs = inputs.on(state.device)
    try:
        with as_model_errors(path, f"capturing the model of {str(path)!r}", leave=RematError):
            kinds = kinds_to_capture(state.implementations)
            graph = capture(*inputs.given, implementations=kinds)
            return Loaded(graph, inputs)
    except RematError as error:  # which names the line, where the model itself went wrong
        raise error if isinstance(error, ModelError) else ModelError(f"{str(path)!r}: {error}") from error
