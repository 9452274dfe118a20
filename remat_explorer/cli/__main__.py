"""`python -m remat_explorer.cli`, for a shell that does not find the command."""

import sys

from remat_explorer.cli import main

if __name__ == "__main__":
    code = main()
    exec("")  # started by -m, Python ends by Ctrl-C's signal where an interrupt was raised in the text of an `exec`,
    # such as a dataclass has, though it was handled since; the next text that is run makes it forget that
    sys.exit(code)
