"""The explorer: a Jupyter widget on one state; views observe it, controllers change it, people script it.

`Explorer` and `presentation` open one, `State` is all that can change in it, `Scene` one scene of a presentation.

In order of reading: `state/state.py` has what is known and chosen; `work/driver.py` everything that a click or a script
starts, of which `work/solving.py` is the heart; `app.py` puts the views together. Each view is a file with its
JavaScript and CSS beside it: rows (`controls`, `story`, `curve`, `scrubber`), pictures (`matrices`, `memory_view`,
`model_view`, `plots_view`) and `panels`. `live_page` is the same without a kernel, from what `recording` holds.
"""

from remat_explorer.explorer.app import Explorer
from remat_explorer.explorer.controllers.scenes import Scene
from remat_explorer.explorer.presentations import presentation
from remat_explorer.explorer.state.state import State
