"""The explorer: a Jupyter widget on one state; views observe it, controllers change it, people script it."""

from remat_explorer.explorer.app import Explorer
from remat_explorer.explorer.presentations import presentation
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.work.scenes import Scene

__all__ = ["Explorer", "Scene", "State", "presentation"]
