"""The command line: the same road as the notebook's, from a shell. `parser` lists the commands and where each is.

Exit codes: 0 done; 1 the execution contradicted the prediction; 2 infeasible; 3 not solved to proven optimality in
time, or interrupted with a schedule (the best one is still written); 64 bad input; 69 something that is needed is
missing: memory, or a package (doctor asks for all of them); 130 interrupted before there was anything to keep.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from remat_explorer.cli.terminal import INTERRUPTED, complain, discard, leaving_imports, prepare_streams

if TYPE_CHECKING:
    import argparse

DONE, BAD_INPUT, MISSING = 0, 64, 69


def main(
    arguments: Sequence[str] | None = None, make_parser: Callable[[], argparse.ArgumentParser] | None = None
) -> int:
    """Run one command and return its exit code.

    Args:
        arguments: the words after the program's name; None for those of this process.
        make_parser: of another program; what it parses has a ``command`` and ``json``, as here.
    """
    prepare_streams()
    try:
        with leaving_imports():
            return _run(arguments, make_parser)
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED
    except MemoryError as error:
        complain(f"there is not enough memory{_said(error)}; {_ALLOWED}")
        return MISSING
    except ImportError as error:
        complain(f"a package cannot be loaded{_said(error)}; {_ALLOWED}, and {_ASK}")
        return MISSING


_ALLOWED = "a limit such as that of `ulimit -v` must leave some gigabytes"
_ASK = "`remat-explorer doctor` says what is installed and works"


def _said(error: BaseException) -> str:
    """The first line of an error's own words, behind a colon."""
    return "".join(f": {line}" for line in str(error).splitlines()[:1])


def _run(arguments: Sequence[str] | None, make_parser: Callable[[], argparse.ArgumentParser] | None) -> int:
    from remat_explorer.cli.output import tell_what_took_longer
    from remat_explorer.errors import RematError

    if make_parser is None:
        from remat_explorer.cli.parser import make_parser  # after Ctrl-C is taken care of: it takes a moment

    try:
        options = make_parser().parse_args(arguments)
        options.words = list(sys.argv[1:] if arguments is None else arguments)
        begun = time.monotonic()
        code = options.command(options)
        tell_what_took_longer(options, time.monotonic() - begun)
        sys.stdout.flush()
        return code
    except RematError as error:
        complain(str(error))
        return BAD_INPUT
    except BrokenPipeError:  # who reads, such as head, has seen enough
        discard(sys.stdout)
        return DONE
    except OSError as error:
        if error.filename is None:  # a file has a name, a stream has none
            discard(sys.stdout)
        named = "" if error.filename is None else f": {error.filename!r}"
        complain(f"{error.strerror or error}{named}")
        return BAD_INPUT
