"""The command line: the same road as the notebook's, from a shell. One file per command, named like it.

Exit codes: 0 done; 1 the execution contradicted the prediction; 2 infeasible; 3 not solved to proven optimality in
time, or interrupted with a schedule (the best one is still written); 64 bad input; 69 something that is needed is
missing (doctor); 130 interrupted before there was anything to keep.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from remat_explorer.cli.output import BAD_INPUT, DONE, INTERRUPTED
from remat_explorer.cli.parser import make_parser
from remat_explorer.errors import RematError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        options = make_parser().parse_args(arguments)
        return options.command(options)
    except RematError as error:
        print(f"remat-explorer: {error}", file=sys.stderr)
        return BAD_INPUT
    except BrokenPipeError:  # who reads, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains when it flushes at exit
        return DONE
    except OSError as error:
        print(f"remat-explorer: {error.strerror}: {error.filename!r}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("remat-explorer: interrupted", file=sys.stderr)
        return INTERRUPTED
