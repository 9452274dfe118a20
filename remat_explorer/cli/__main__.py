"""`python -m remat_explorer.cli`, for a shell that does not find the command."""

import sys

from remat_explorer.cli import main

if __name__ == "__main__":
    sys.exit(main())
