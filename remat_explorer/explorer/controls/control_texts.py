"""What the controls say and read: tooltips, why a button is disabled, image sizes, devices."""

from __future__ import annotations

from remat_explorer.errors import QuantityError, shown
from remat_explorer.explorer.state.implementation_choices import NONE
from remat_explorer.explorer.state.state import State
from remat_explorer.solvers.strategies.registry import default_strategy

MOST_EXAMPLES = 100_000
MOST_SECONDS = 1_000_000
TOOLTIPS = {
    "model": "What to explore: a model of the zoo, your own, or a file of this folder that defines make_model",
    "refresh": "Look for model files again, and load the chosen model again as it is now",
    "batch": "Examples in a batch; activations grow with it; leave it empty for a suitable size",
    "image": 'Pixels: "64", or height and width: "416x608"; leave it empty for a suitable size',
    "device": "Where costs are measured and schedules are executed",
    "measured_costs": "Estimate costs from published rates, or time each operation on the device: at once, or when you "
    "execute a schedule. Measuring also finds the workspace",
    "implementations": "Other ways to compute operations that the schedule may choose: none; exact, whose results are "
    "equal bit for bit; or all. The row above the matrices switches each kind on or off",
    "strategy": "How schedules are found",
    "options": "Options of the strategy: NAME=VALUE, with commas between them.",
    "solver": "Back end for linear and integer programs",
    "time_limit": "Seconds that a solve may take",
}


HIDDEN = ("device", "measured_costs", "implementations", "strategy", "options", "solver", "time_limit")


def beyond_usual(state: State) -> list[str]:
    """What was chosen in fields that are usually hidden, and is not as the explorer begins.

    >>> beyond_usual(State()), beyond_usual(State(strategy="dtr", time_limit=5))
    ([], ['strategy dtr', 'limit 5 s'])
    """
    usual = "optimal" if state.graph is None else default_strategy(state.graph)
    said = {
        "device": "" if state.device == "cpu" else f"device {state.device}",
        "measured_costs": {None: "", True: "measured costs", False: "estimated costs"}[state.measured_costs],
        "implementations": "" if state.implementations == NONE else "implementations",
        "strategy": "" if state.strategy == usual else f"strategy {state.strategy}",
        "options": "options" if state.options else "",
        "solver": "" if state.solver == "highs" else f"solver {state.solver}",
        "time_limit": "" if state.time_limit == 60 else f"limit {state.time_limit:g} s",
    }
    return [words for words in said.values() if words]


def measures_first(state: State) -> bool:
    """Whether Execute begins by measuring costs."""
    return state.measured_costs is None and not state.costs_are_measured and state.inputs is not None


def button_reasons(state: State) -> dict[str, tuple[str, str]]:
    """For each button why it is disabled, or "", and what it does.

    >>> button_reasons(State())["cancel"][0]
    'Nothing is under way'
    >>> button_reasons(State(busy="solving"))["execute"][0]
    'Wait until solving is done, or cancel it'
    """
    wait = f"Wait until {state.busy} is done, or cancel it" if state.busy else ""
    no_graph = "" if state.graph is not None else "There is no model yet"
    no_solution = "" if state.solution is not None else "There is no solution to execute yet: solve first"
    under_way = state.busy or state.improving
    return {
        "refresh": ("", TOOLTIPS["refresh"]),
        "solve": (wait or no_graph, "Look for the cheapest schedule within the budget by the chosen strategy"),
        "cancel": (
            "" if under_way else "Nothing is under way",
            "Stop what is under way; a solve keeps the best schedule it has found",
        ),
        "execute": (
            wait or state.no_execution or no_solution,
            "Run the schedule on the screen, and measure memory, time and gradients"
            + ("; costs and workspace are measured first" if measures_first(state) else ""),
        ),
    }


def image_text(image: int | tuple[int, int] | None) -> str:
    """An image size as the field shows it.

    >>> image_text((416, 608)), image_text(64), image_text(None)
    ('416x608', '64', '')
    """
    return "x".join(map(str, image)) if isinstance(image, tuple) else str(image or "")


def parse_image(text: str) -> int | tuple[int, int] | None:
    """An image size from the field: "64", "416x608", or nothing.

    Raises:
        QuantityError: if it is none of these.

    >>> parse_image("64"), parse_image("416 x 608"), parse_image(" ")
    (64, (416, 608), None)
    """
    sides = text.replace("×", "x").replace(",", "x").split("x") if text.strip() else []
    try:
        pixels = [int(side) for side in sides]
    except ValueError:
        pixels = [0]
    if len(pixels) > 2 or any(side < 1 for side in pixels):
        raise QuantityError(f'{shown(text)} is not an image size; write pixels: "64", or height and width: "416x608"')
    return None if not pixels else pixels[0] if len(pixels) == 1 else (pixels[0], pixels[1])


def batch_text(batch: int) -> str:
    """A batch size as the field shows it; nothing where the model's own is taken.

    >>> batch_text(32), batch_text(0)
    ('32', '')
    """
    return str(batch or "")


def parse_batch(text: str) -> int:
    """A batch size from the field; nothing for a size to begin with.

    Raises:
        QuantityError: if it is not a whole number from 1 to `MOST_EXAMPLES`.

    >>> parse_batch(" 32"), parse_batch("")
    (32, 0)
    >>> parse_batch("1e99")
    Traceback (most recent call last):
        ...
    remat_explorer.errors.QuantityError: '1e99' is not a batch size; write a whole number from 1 to 100000
    """
    digits = text.strip()
    if not digits:
        return 0
    if not (digits.isdecimal() and len(digits) <= 6 and 1 <= int(digits) <= MOST_EXAMPLES):
        raise QuantityError(f"{shown(text)} is not a batch size; write a whole number from 1 to {MOST_EXAMPLES}")
    return int(digits)


def parse_limit(text: str) -> float:
    """A time limit from the field, in seconds.

    Raises:
        QuantityError: if it is not a number from 0 to `MOST_SECONDS`.

    >>> parse_limit("2.5")
    2.5
    >>> parse_limit("1 min")
    Traceback (most recent call last):
        ...
    remat_explorer.errors.QuantityError: '1 min' is not a time limit; write seconds from 0 to 1000000: "60"
    """
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MOST_SECONDS:
        raise QuantityError(f'{shown(text)} is not a time limit; write seconds from 0 to {MOST_SECONDS}: "60"')
    return seconds


def devices(state: State) -> list[str]:
    """The devices to choose from: the CPU, the one already chosen, and the GPU where there is one.

    A GPU is looked for when a module has been loaded: importing torch takes seconds, for which no screen should wait.
    """
    names = ["cpu"]
    if state.inputs is not None:
        import torch

        names += ["cuda"] if torch.cuda.is_available() else []
    return names if state.device in names else [*names, state.device]
