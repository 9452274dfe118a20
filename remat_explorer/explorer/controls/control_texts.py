"""What the controls say and read: tooltips, why a button is disabled, image sizes, devices."""

from __future__ import annotations

from remat_explorer.errors import QuantityError
from remat_explorer.explorer.state.state import State

TOOLTIPS = {
    "model": "What to explore: a model of the zoo, your own, or a file of this folder that defines make_model",
    "refresh": "Look for model files again, and load the chosen model again as it is now",
    "batch": "Examples in a batch; activations grow with it",
    "image": 'Pixels: "64", or height and width: "416x608"; empty for a size to begin with',
    "device": "Where costs are measured and schedules are executed",
    "measured_costs": "Time each operation on the device, or estimate it from published rates",
    "implementations": "Other ways to compute operations, among which the schedule may choose: none; exact, those with "
    "results equal bit for bit; all. Kinds are switched in the row above the matrices",
    "strategy": "How schedules are found",
    "options": "Options of the strategy: NAME=VALUE, with commas between them.",
    "solver": "Back end for linear and integer programs",
    "time_limit": "Seconds that a solve may take",
}


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
            "Run the schedule on the screen, and measure memory, time and gradients",
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
        raise QuantityError(f'{text!r} is not an image size; write pixels: "64", or height and width: "416x608"')
    return None if not pixels else pixels[0] if len(pixels) == 1 else (pixels[0], pixels[1])


def devices(state: State) -> list[str]:
    """The devices to choose from: the CPU, the one already chosen, and the GPU where there is one.

    A GPU is looked for when a module has been loaded: importing torch takes seconds, for which no screen should wait.
    """
    names = ["cpu"]
    if state.inputs is not None:
        import torch

        names += ["cuda"] if torch.cuda.is_available() else []
    return names if state.device in names else [*names, state.device]
