"""The explorer: a Jupyter widget on one state; views observe it, controllers change it, people script it."""

from remat_explorer.explorer.app import Explorer
from remat_explorer.explorer.state.state import State

__all__ = ["Explorer", "State"]
