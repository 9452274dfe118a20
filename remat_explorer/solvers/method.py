"""What a strategy says of itself: how it runs, what Table 1 of the paper says of it, and how others treat it.

`Method` is the description; `cheapest_within` and `within_budget` run a method that has a few schedules to choose from;
`read_options`, `write_options` and `default_options` are its options as text; `table_one_row` is its row of Table 1.

Source: Jain et al., Checkmate (MLSys 2020), Table 1.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from remat_explorer.errors import SolverError, shown
from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.condensed_graph import smallest_budget_with_stages
from remat_explorer.solvers.solver_interface import Answer, Limits, Strategy


class Support(StrEnum):
    """Whether a method has a property; "partly" is the tilde of the paper's table."""

    YES = "yes"
    PARTLY = "partly"
    NO = "no"


@dataclass(frozen=True)
class Knob:
    """What a method can be turned by: a keyword argument of `solve`, without which the method tries all values.

    Attributes:
        name: of the keyword argument.
        meaning: one sentence for a person, with the unit.
        values: what a sweep tries on a graph.
    """

    name: str
    meaning: str
    values: Callable[[Graph], Sequence[float]]


@dataclass(frozen=True, eq=False)
class Candidate:
    """A schedule of a method that does not ask for the budget.

    Attributes:
        schedule: frontier-advancing.
        label: the setting that it comes from, in words; "" where the method has one schedule only.
    """

    schedule: Schedule
    label: str = ""


def _nothing() -> None:
    """There is nothing to import."""


class BackgroundSweep(StrEnum):
    """Whether the sweep that fills the explorer's trade-off curve in the background runs a method.

    Its process draws the screen, too, and checks every schedule. So methods with many schedules are left out on large
    graphs.
    """

    ALWAYS = "always"
    SMALL_GRAPHS = "small graphs"
    NEVER = "never"


@dataclass(frozen=True)
class SharedSearch:
    """How several budgets of a sweep share one search.

    ``plan`` makes a first answer for each budget, ascending; ``solve`` takes schedules to begin with wherever they fit,
    and whether ``plan`` has run.
    """

    plan: Callable[[Graph, Sequence[int], Limits], Sequence[Answer]]
    solve: Callable[[Graph, Sequence[int], Sequence[Schedule], Limits, bool], Sequence[Answer]]


@dataclass(frozen=True)
class Method:
    """A strategy with its row of Table 1, and what distinguishes it elsewhere; calling it runs the strategy.

    Attributes:
        run: the function; it takes the options below as keyword arguments.
        summary: what it does, in one sentence.
        source: authors, year and section.
        general_graphs: whether it takes graphs that are not chains.
        cost_aware: whether it tells cheap operations from expensive ones.
        memory_aware: whether it looks at sizes and at the budget.
        knob: what it can be turned by, or None.
        options: names of its other keyword arguments.
        candidates: of a method that does not ask for the budget, all its schedules, by the same options.
        choices: whether it chooses among an operation's implementations; "partly": it runs the default ones.
        compiled_search: whether it needs the compiled search, which is loaded before its clock begins.
        threads: how many threads it makes use of, where nobody chose and there are so many cores.
        improve: of an anytime search, the same search from a known answer, by the same options: graph, budget, a
            schedule within it and a lower bound (None for either), and limits in; an answer that is never worse out.
            What such a method shows is improved in the background.
        together: how budgets of a sweep share its work; None: each budget is solved alone.
        stages: whether its schedules go stage by stage. One whose schedules do not may know of cheaper ones, so that
            no bound on the others holds for it.
        complete: whether its "infeasible" says that no schedule with stages fits, of the implementations it may run.
        smallest_budget: bytes below which it has no schedule, known without a search.
        background_sweep: whether the explorer's sweep runs it; None: on small graphs, if it has ``candidates``.
        symbol: plotly's name of its marker; "" takes one that no other strategy has.
        load: imports what it needs, before its clock begins: torch alone takes seconds.
    """

    run: Strategy
    summary: str
    source: str
    general_graphs: Support
    cost_aware: Support
    memory_aware: Support
    knob: Knob | None = None
    options: tuple[str, ...] = ()
    candidates: Callable[..., Iterator[Candidate]] | None = None
    choices: Support = Support.NO
    compiled_search: bool = False
    threads: int = 1
    improve: Callable[..., Answer] | None = None
    together: SharedSearch | None = None
    stages: bool = True
    complete: bool = False
    smallest_budget: Callable[[Graph], int] = smallest_budget_with_stages
    background_sweep: BackgroundSweep | None = None
    symbol: str = ""
    load: Callable[[], object] = _nothing

    def __call__(self, graph: Graph, budget: int, limits: Limits, **options: Any) -> Answer:
        """Run the strategy."""
        return self.ended(self.run(graph, budget, limits, **options), limits)

    def ended(self, answer: Answer, limits: Limits) -> Answer:
        """The answer with what ended the work, where it does not say that itself."""
        if answer.limit or answer.infeasible:
            return answer
        if self.complete:
            otherwise = "its search, which has no more steps"
        else:
            otherwise = "the method, which proves no bound"
            if answer.schedule is None:
                otherwise = "the method, none of whose schedules fits"
        return replace(answer, limit=limits.reached or otherwise)

    @property
    def arguments(self) -> tuple[str, ...]:
        """Names of all keyword arguments that it takes."""
        return ((self.knob.name,) if self.knob else ()) + self.options

    def proves_infeasible(self, graph: Graph) -> bool:
        """Whether its "infeasible" says that no schedule with stages of a graph fits, in any implementations."""
        return self.complete and (self.choices is Support.YES or not graph.has_choices)

    def improves_on(self, graph: Graph) -> bool:
        """Whether it goes on from what is known of ``graph``, and chooses implementations just where there are any."""
        return self.improve is not None and (self.choices is Support.YES) == graph.has_choices

    def runs_in_background(self, large: bool) -> bool:
        """Whether the explorer's background sweep runs it, on a large graph or on a small one."""
        usual = BackgroundSweep.NEVER if self.candidates is None else BackgroundSweep.SMALL_GRAPHS
        chosen = self.background_sweep or usual
        return chosen is BackgroundSweep.ALWAYS or (chosen is BackgroundSweep.SMALL_GRAPHS and not large)

    def require_arguments(self, strategy: str, given: Sequence[str]) -> None:
        """Refuse a keyword argument that the method does not have.

        Raises:
            SolverError: quoting it, with those that there are.
        """
        for name in given:
            if name not in self.arguments:
                names = ", ".join(self.arguments) or "none"
                raise SolverError(f"the strategy {strategy!r} has no option {name!r}; its options: {names}")

    def require_graph(self, strategy: str, graph: Graph) -> None:
        """Refuse a graph with optional operations, if the method would run them all.

        Raises:
            SolverError: quoting the first of them.
        """
        if self.choices is Support.NO and graph.stages < graph.n:
            name = next(node.name for node in graph.operations if node.optional)
            raise SolverError(
                f"the strategy {strategy!r} runs every operation, but {name!r} is optional: choose implementations "
                "with remat_explorer.solvers.monet.selections.restricted_to, or use 'monet'"
            )


def cheapest_within(candidates: Iterator[Candidate], budget: int, limits: Limits) -> Answer:
    """The cheapest of a method's schedules whose plan fits into the budget; no bound, since it proves nothing."""
    best: Schedule | None = None
    for candidate in candidates:
        cheaper = best is None or candidate.schedule.cost < best.cost
        if cheaper and Plan.of(candidate.schedule).peak <= budget:
            best = candidate.schedule
            limits.tell(f"trying {candidate.label}" if candidate.label else "done", best)
        if limits.over:
            break
    return Answer(best)


def within_budget(candidates: Callable[..., Iterator[Candidate]]) -> Strategy:
    """The strategy that takes the cheapest candidate that fits into the budget; its options are the candidates' own."""

    def strategy(graph: Graph, budget: int, limits: Limits, **options: Any) -> Answer:
        return cheapest_within(candidates(graph, **options), budget, limits)

    return strategy


def whole_number(name: str, given: float, least: int, unit: str) -> int:
    """An option that counts something, at least ``least``."""
    number = isinstance(given, int | float) and not isinstance(given, bool)
    if not number or given != given // 1 or given < least:
        raise SolverError(f"{name} is {shown(given)}; give a whole number of {unit}, at least {least}")
    return int(given)


Setting = str | int | float


def read_option(text: str) -> tuple[str, Setting]:
    """A name and what it is set to: a number where it is one, else text.

    Raises:
        SolverError: if there is no name, no value, or no = between them.

    >>> read_option("splits=2"), read_option("share=0.4"), read_option("knapsack=dp")
    (('splits', 2), ('share', 0.4), ('knapsack', 'dp'))
    """
    name, equals, value = (part.strip() for part in text.partition("="))
    if not (name and equals and value):
        raise SolverError(f"{text!r} is not NAME=VALUE, such as segments=4")
    for number in (int, float):
        try:
            return name, number(value)
        except ValueError:
            continue
    return name, value


def read_options(text: str, strategy: str, method: Method) -> dict[str, Setting]:
    """Several options of a strategy.

    Args:
        text: "NAME=VALUE, NAME=VALUE", or nothing.
        strategy: its name, for the message.
        method: what it is.

    Raises:
        SolverError: if an option cannot be read, is given twice, or is none of the strategy's.

    >>> from remat_explorer.solvers.registry import STRATEGIES
    >>> read_options("epsilon=0.2, threshold=0.5", "checkmate-approx", STRATEGIES["checkmate-approx"])
    {'epsilon': 0.2, 'threshold': 0.5}
    >>> read_options("slot=3", "griewank", STRATEGIES["griewank"])
    Traceback (most recent call last):
        ...
    remat_explorer.errors.SolverError: the strategy 'griewank' has no option 'slot'; its options: slots
    """
    given: dict[str, Setting] = {}
    for part in text.split(","):
        if part.strip():
            name, value = read_option(part)
            if name in given:
                raise SolverError(f"the option {name} is given twice, as {given[name]!r} and as {value!r}")
            given[name] = value
    method.require_arguments(strategy, list(given))
    return given


def write_options(options: dict[str, Any]) -> str:
    """The text that `read_options` reads.

    >>> write_options({"epsilon": 0.2, "threshold": 0.5})
    'epsilon=0.2, threshold=0.5'
    """
    return ", ".join(f"{name}={value}" for name, value in options.items())


def default_options(method: Method) -> dict[str, str]:
    """What a method's arguments are without being given, in words.

    >>> from remat_explorer.solvers.registry import STRATEGIES
    >>> default_options(STRATEGIES["checkmate-ilp"]), default_options(STRATEGIES["griewank"])
    ({'splits': '1'}, {'slots': 'all'})
    """
    try:
        parameters = dict(inspect.signature(method.run).parameters)
    except (TypeError, ValueError):  # loaded from another package when it first runs
        parameters = {}
    options = {}
    for name in method.arguments:
        default = parameters[name].default if name in parameters else None
        is_knob = method.knob is not None and method.knob.name == name
        unknown = default is None or default is inspect.Parameter.empty
        options[name] = ("all" if is_knob else "…") if unknown else str(default)
    return options


@dataclass(frozen=True)
class TableOneRow:
    """What is to be known of a strategy."""

    summary: str  # what it does; of one that cannot be loaded, why not, and the rest is empty
    general_graphs: str = ""  # this and the next two are "yes", "partly" or "no", as in `Method`
    cost_aware: str = ""
    memory_aware: str = ""
    knob: str = ""  # the option that turns it, or ""
    knob_meaning: str = ""  # what that is, with its range
    options: tuple[str, ...] = ()  # its other options
    source: str = ""  # authors, year and section

    def describe(self) -> str:
        """The row as sentences: what the strategy does, what turns it, and where it comes from."""
        knob = f" Knob: {self.knob}, {self.knob_meaning}." if self.knob else ""
        return f"{self.summary}.{knob}" + (f" Source: {self.source}." if self.source else "")


def table_one_row(method: Method) -> TableOneRow:
    """The row of a method.

    >>> from remat_explorer.solvers.registry import STRATEGIES
    >>> table_one_row(STRATEGIES["checkpoint-all"]).cost_aware
    'no'
    """
    try:
        return TableOneRow(
            method.summary,
            str(method.general_graphs),
            str(method.cost_aware),
            str(method.memory_aware),
            method.knob.name if method.knob else "",
            method.knob.meaning if method.knob else "",
            method.options,
            method.source,
        )
    except SolverError as error:  # of another package
        return TableOneRow(str(error))
