"""Whether a training step of the chosen model fits into a memory, answered in the background."""

from __future__ import annotations

import threading
from typing import Any

from traitlets import TraitError

from remat_explorer.cancellation import CaptureCancelled
from remat_explorer.entry_checks import Seconds, require_arguments
from remat_explorer.errors import ArgumentError, ModelError, RematError, UnknownNameError, shown
from remat_explorer.explorer.controllers.background import has_ended
from remat_explorer.explorer.controllers.model_sources import DEFAULT_SIZES
from remat_explorer.explorer.state.state import State

FIT_SETTINGS = ("memory", "optimizer", "precision", "master_weights", "full_gradients")
_NO_PARAMETERS = (
    "This is a graph without a module: it does not say which of its bytes are parameters, so what an optimizer keeps "
    "is not known. Choose a model."
)


class FitMethods:
    """The part of `Driver` that asks whether a step fits."""

    state: State
    _fitter: FitWorker

    def fit(self, memory: str | None = None, **question: Any) -> None:
        """Begin to answer in the panel *Fit* whether a training step fits into a memory; `State.fitted` is the answer.

        Args:
            memory: of the device, such as "24 GB"; None for what was asked last.
            question: optimizer, precision, master_weights and full_gradients, as `remat_explorer.fit` takes them.

        Raises:
            UnknownNameError: if there is no such setting.
        """
        require_arguments(FitMethods.fit, locals())
        if memory is not None:
            question["memory"] = memory
        for name in question:
            if name not in FIT_SETTINGS:
                raise UnknownNameError("setting of fit", name, FIT_SETTINGS)
        for name, value in question.items():
            try:
                setattr(self.state, f"fit_{name}", value)
            except TraitError as error:
                raise ArgumentError(f"fit does not take {name}={shown(value)}: {error}") from None
        with self.state.at_once():  # else changes of another thread may hold this one back
            self.state.panel, self.state.fit_asked = "fit", True

    def wait_for_fit(self, timeout: Seconds | None = None) -> bool:
        """Block until the panel *Fit* has its answer; returns whether that came true in ``timeout`` seconds."""
        require_arguments(FitMethods.wait_for_fit, locals())
        return self._fitter.wait(timeout)


class FitWorker:
    """Asks `remat_explorer.fit` while `State.fit_asked` is true, and forgets the answer to another question.

    It is not what the explorer's status line speaks of: schedules can be looked at and solved meanwhile.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._thread: threading.Thread | None = None
        self._cancelled = threading.Event()
        state.observe(self._ask, "fit_asked")
        state.observe(self._forget, ["model", "batch", "image", *(f"fit_{name}" for name in FIT_SETTINGS)])

    def offer(self) -> None:
        """Show the panel of a model that is too large to run here, unless another one is looked at."""
        state = self._state
        if state.inputs is None and state.model in DEFAULT_SIZES and state.panel == "explain":
            state.panel = "fit"

    def wait(self, timeout: float | None = None) -> bool:
        """Block until nothing is being answered; returns whether that came true in ``timeout`` seconds."""
        return has_ended(self._thread, timeout)

    def _ask(self, change: Any) -> None:
        self._cancelled.set()
        self._state.fit_doing = ""
        if change["new"]:
            self._cancelled = threading.Event()
            self._state.fit_doing, self._state.fit_refusal = "importing PyTorch", ""
            arguments = (self._cancelled, self._thread)
            self._thread = threading.Thread(target=self._answer, args=arguments, name="remat-fit", daemon=True)
            self._thread.start()

    def _forget(self, change: Any) -> None:
        self._state.fit_asked, self._state.fitted, self._state.fit_refusal = False, None, ""

    def _answer(self, cancelled: threading.Event, previous: threading.Thread | None) -> None:
        if previous is not None:
            previous.join()
        state, found, refusal = self._state, None, ""
        try:
            found = _fit(state, cancelled)
        except CaptureCancelled:
            pass
        except RematError as error:
            refusal = str(error)
        except Exception as error:  # whatever a person's own model raises belongs on the screen
            refusal = f"{type(error).__name__}: {error}"
        with state.at_once():
            if not cancelled.is_set():  # else nobody waits for it, or somebody has asked anew
                state.fitted, state.fit_refusal = found, refusal
                state.fit_asked = False


def _fit(state: State, cancelled: threading.Event) -> Any:
    """The answer for the state's model: of the zoo without weights, else as it is."""
    from remat_explorer.fit import fit

    def say(doing: str) -> None:
        if not cancelled.is_set():
            state.fit_doing = doing

    recipe: dict[str, Any] = {
        "optimizer": state.fit_optimizer,
        "master_weights": state.fit_master_weights,
        "full_gradients": state.fit_full_gradients,
        "on_progress": say,
        "cancelled": cancelled.is_set,
    }
    if state.model in DEFAULT_SIZES:  # a module or a graph of the person's own has another name
        begin = DEFAULT_SIZES[state.model]
        sizes = {
            "batch": state.batch or begin.get("batch"),
            "image": state.image or begin.get("image"),
            "sequence": begin.get("sequence"),
            "precision": state.fit_precision,
        }
        chosen = {name: size for name, size in sizes.items() if size is not None}
        return fit(state.model, state.fit_memory, **recipe, **chosen)
    if state.inputs is None:
        raise ModelError(_NO_PARAMETERS)
    module, args, kwargs, loss = state.inputs.arguments
    return fit(module, state.fit_memory, args, kwargs, loss, **recipe)
