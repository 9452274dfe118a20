"""`remat-explorer solve`, `sweep` and `ablation`: one budget, many, and what each kind of alternative is worth."""

from __future__ import annotations

import argparse
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

import remat_explorer as rx
from remat_explorer.cli.model_lookup import chosen_strategies, find_graph, is_graph_file, read_kinds
from remat_explorer.cli.output import (
    DONE,
    INFEASIBLE,
    INTERRUPTED,
    NOT_IN_TIME,
    beside_search,
    put,
    require_outputs,
    retype_command,
    say,
    written_to,
)
from remat_explorer.cli.solve_progress import TICK, WatchedSolve, progress_line, watch
from remat_explorer.cli.terminal import complain
from remat_explorer.documents import write_text
from remat_explorer.errors import FileError, SolutionError, SolverError
from remat_explorer.graph import Graph, cost_unit
from remat_explorer.plain_text import one_line
from remat_explorer.quantities import SMALLEST, exact_bytes, format_bytes, format_seconds, format_share, parse_bytes
from remat_explorer.solvers import REQUESTED, TRANSFER_STRATEGIES, Status, default_strategy

if TYPE_CHECKING:
    from remat_explorer.offload import TransferSolution
    from remat_explorer.solvers import Ablation, Frontier, MinimumBudget, Progress, Solution, SweepProgress


def solve(options: argparse.Namespace) -> int:
    """Solve, print the answer, and write the schedule where that was asked for."""
    from remat_explorer.allocator import predict_allocator
    from remat_explorer.offsets import predict_pool
    from remat_explorer.solvers import RESERVED

    require_outputs(options)
    if options.offload is not None or options.host_memory is not None or options.strategy in TRANSFER_STRATEGIES:
        return _solve_with_transfers(options)
    watched = solve_watched(options, find_graph(options))
    solution = watched.solution
    if solution.schedule is None and watched.interrupted:
        return report_interrupted()
    if solution.plan is None:
        return report_without_schedule(options, watched)
    lines = [str(solution)]
    if solution.lower_bound is not None and solution.cost is not None:
        unit = cost_unit(solution.graph)
        cost, bound = f"{solution.cost:.6g}{unit}", f"{solution.lower_bound:.6g}{unit}"
        lines.append(f"cost {cost}, lower bound {bound}, peak {exact_bytes(solution.plan.peak)}")
    document = without_matrices(solution) | {"from_cache": watched.from_cache, "interrupted": watched.interrupted}
    if options.json or options.budget_means == RESERVED:  # not for those who see neither: the pool is searched for
        with beside_search(options, "the prediction for a GPU"):
            taken, pool = predict_allocator(solution.plan), predict_pool(solution.plan)
        document |= {
            "predicted_reserved_on_gpu": taken.peak_reserved,
            "predicted_pool_on_gpu": pool.to_document(),
        }
        if options.budget_means == RESERVED:
            lines += [f"{taken} (predicted)", f"{pool} (predicted)"]
    lines += remarks(watched)
    if options.output and solution.schedule:
        lines.append(written_to(options.output))
    put(options, document, "\n".join(lines))
    return DONE if solution.status is Status.OPTIMAL else NOT_IN_TIME


def solve_watched(options: argparse.Namespace, graph: Graph) -> WatchedSolve:
    """The solution of ``graph``, with progress on a terminal; written to a file if there is a schedule.

    Raises:
        RematError: if nothing was found because the solve failed, or what was found cannot be written.
    """
    watched = watch(options, graph)
    if options.output and watched.solution.schedule:
        try:
            watched.solution.save(options.output)
        except FileError as error:
            raise SolutionError(
                f"{watched.solution}; it could not be written to {options.output!r}: {error.strerror}"
            ) from None
    return watched


def remarks(watched: WatchedSolve) -> list[str]:
    """What a person should know of how a solution came about."""
    lines = []
    if watched.interrupted:
        lines.append("interrupted: this is the best schedule found until then")
    elif watched.solution.limit and watched.solution.schedule is not None:
        lines.append(f"ended by {watched.solution.limit}")
    if watched.from_cache:
        lines.append("found in the cache, with the time of the solve that found it; --no-cache solves anew")
    return lines


def report_interrupted() -> int:
    """Say that Ctrl-C came before there was anything to keep."""
    complain("interrupted before a schedule was found")
    return INTERRUPTED


def report_without_schedule(options: argparse.Namespace, watched: WatchedSolve) -> int:
    """Say what forbids the budget, or what ended the search for a schedule, and the smallest one worth trying."""
    from remat_explorer.solvers import RESERVED, explain_unfit

    solution = watched.solution
    say(options, "looking for the smallest budget that works")
    with beside_search(options, "looking for the smallest budget"):
        smallest = rx.minimum_budget(solution.graph)
    say(options, "")
    infeasible = solution.status is Status.INFEASIBLE
    document = without_matrices(solution) | {
        "minimum_budget": {
            "lower_bound": smallest.lower_bound,
            "known_feasible": smallest.known_feasible,
            "operation": solution.graph.operations[smallest.operation].name,
        }
    }
    if infeasible:
        reason = smallest.explain_infeasible(solution.strategy, solution.budget)
    elif options.budget_means == RESERVED:
        reason = explain_unfit(solution)
    else:
        reason = smallest.explain_unknown(solution.strategy, solution.budget, solution.limit)
    lines = [str(solution), reason, *remarks(watched)]
    if options.budget_means != RESERVED and (instead := _command_instead(options, solution, smallest)):
        lines.append(f"to go on, type: {instead}")
    put(options, document, "\n".join(lines))
    return INFEASIBLE if infeasible else NOT_IN_TIME


def _command_instead(options: argparse.Namespace, solution: Solution, smallest: MinimumBudget) -> str:
    """The command that finds a schedule where this one cannot; "" where only more time helps."""
    better, budget = default_strategy(solution.graph), options.budget
    fits = solution.budget >= smallest.known_feasible
    if fits and solution.strategy == better:
        return ""
    given = {"--budget": budget if fits else reachable_budget(budget)}
    if solution.strategy != better:
        given |= {"--strategy": better, "--option": ""}
    return retype_command(options, given)


def reachable_budget(budget: str) -> str:
    """The same share of the way, in place of a share of keeping everything that cannot be reached; else "smallest".

    >>> reachable_budget("60%"), reachable_budget("2 GiB")
    ('60% of the way', 'smallest')
    """
    return f"{budget.strip()} of the way" if budget.strip().endswith("%") else SMALLEST


def without_matrices(solution: Solution) -> dict[str, Any]:
    """The solution file without its matrices."""
    return {key: entry for key, entry in solution.to_document().items() if key not in ("format", "version", "R", "S")}


def _solve_with_transfers(options: argparse.Namespace) -> int:
    """`solve`, where values may also be sent to the host; Ctrl-C ends it with the best plan so far."""
    transfers = _read_transfers(options)
    graph, budget, strategy = find_graph(options), options.budget, options.strategy or "offload"
    stopped, latest = threading.Event(), list["Progress"]()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(
            rx.solve,
            graph,
            budget,
            strategy,
            options.time_limit,
            options.solver,
            options.threads,
            on_progress=latest.append,
            cancelled=stopped.is_set,
            cache=not options.no_cache,
            transfers=transfers,
        )
        try:
            while not wait([running], TICK).done:
                seconds = latest[-1].seconds if latest else 0.0
                say(options, progress_line(seconds, options.time_limit, latest[-1] if latest else None, graph))
        except KeyboardInterrupt:
            stopped.set()
            say(options, "stopping")
        solution = running.result()
    say(options, "")
    if solution.plan is None:
        return report_interrupted() if stopped.is_set() else _report_without_plan(options, solution)
    lines = [str(solution), *_lines_of(solution)]
    if stopped.is_set():
        lines.append("interrupted: this is the best plan found until then")
    elif solution.limit:
        lines.append(f"ended by {solution.limit}")
    if options.output:
        lines.append(written_to(solution.save(options.output)))
    put(options, _without_plan(solution) | {"interrupted": stopped.is_set()}, "\n".join(lines))
    return DONE if solution.status is Status.OPTIMAL else NOT_IN_TIME


def _read_transfers(options: argparse.Namespace) -> rx.Transfers:
    """What ``--offload`` and ``--host-memory`` say.

    Raises:
        QuantityError: if they cannot be read.
        SolverError: if one is missing, or another option does not go with them.
    """
    example = '--offload "25 GB/s"; doctor says what this machine reaches'
    if options.offload is None:
        given = (
            f"--strategy {options.strategy}" if options.host_memory is None else f"--host-memory {options.host_memory}"
        )
        raise SolverError(f"{given} needs a bandwidth, such as {example}")
    if (options.strategy or "offload") not in TRANSFER_STRATEGIES:
        names = " or ".join(TRANSFER_STRATEGIES)
        raise SolverError(f"--strategy {options.strategy} sends nothing: with --offload, give {names}, or none")
    if options.budget_means != REQUESTED or options.strategy_options:
        given = f"--budget-means {options.budget_means}" if options.budget_means != REQUESTED else "--option"
        raise SolverError(f"{given} does not go with --offload")
    return rx.Transfers.of(options.offload, None if options.host_memory is None else parse_bytes(options.host_memory))


def _lines_of(solution: TransferSolution) -> list[str]:
    """What a plan takes, and where these numbers come from."""
    plan, unit = solution.plan, cost_unit(solution.graph)
    assert plan is not None
    bound = "" if solution.lower_bound is None else f", lower bound {solution.lower_bound:.6g}{unit}"
    waits = f"{max(0.0, plan.makespan - plan.computing):.6g}{unit}"
    return [
        f"makespan {plan.makespan:.6g}{unit}{bound}, of which {waits} waits for copies",
        f"peak {exact_bytes(plan.peak)}, sent {exact_bytes(plan.sent_bytes)}, on the host at most "
        f"{exact_bytes(plan.host_peak)}",
        f"times are predicted, for {solution.transfers.describe()}; nothing was measured",
    ]


def _report_without_plan(options: argparse.Namespace, solution: TransferSolution) -> int:
    """Say what forbids the budget, or that no plan was found, and a command that finds one."""
    from remat_explorer.solvers import largest_operation

    k, least = largest_operation(solution.graph)
    lines, budget = [str(solution)], format_bytes(solution.budget)
    if solution.budget < least:
        name = solution.graph.operations[k].name
        lines.append(f"{budget} is too little for any plan: the operation {name!r} alone needs {exact_bytes(least)}")
    elif solution.status is Status.INFEASIBLE:
        lines.append(f"it is proven that no plan of this strategy fits into {budget}")
    given = {"--budget": reachable_budget(options.budget)}
    if not TRANSFER_STRATEGIES[solution.strategy].recomputes:
        given |= {"--strategy": "offload"}
    lines.append(f"to go on, type: {retype_command(options, given)}")
    put(options, _without_plan(solution) | {"interrupted": False, "largest_operation": least}, "\n".join(lines))
    return INFEASIBLE if solution.status is Status.INFEASIBLE else NOT_IN_TIME


def _without_plan(solution: TransferSolution) -> dict[str, Any]:
    """The file without its statements, with what follows from them."""
    plan = solution.plan
    found = {} if plan is None else {"sent_bytes": plan.sent_bytes, "computing": plan.computing}
    return {key: e for key, e in solution.to_document().items() if key not in ("format", "version", "plan")} | found


def sweep(options: argparse.Namespace) -> int:
    """Sweep, print the points as a table, and write them where that was asked for.

    An interrupt ends the sweep, not the command: what was found by then is printed and written.
    """
    require_outputs(options)
    graph = find_graph(options)
    run = rx.Sweep(
        graph,
        budgets=read_budgets(options.budgets),
        strategies=chosen_strategies(options.strategies, graph),
        time_limit=options.time_limit,
        workers=options.workers,
        solver=options.solver,
        threads=options.threads,
        cache=not options.no_cache,
    )
    interrupted = False
    try:
        with run:
            say(options, _describe(run.progress()))
            for _ in run:
                say(options, _describe(run.progress()))
    except KeyboardInterrupt:
        interrupted = True
        run.cancel()
    say(options, "")
    for remark in run.remarks:
        complain(remark)
    return _print_sweep(options, run.frontier(), interrupted, run.from_cache)


def read_budgets(text: str) -> int | list[str]:
    """A number of budgets, or budgets with commas between them.

    >>> read_budgets("12"), read_budgets("60%, 8 GiB"), read_budgets("4096,")
    (12, ['60%', '8 GiB'], ['4096'])
    """
    if text.strip().isdecimal() and len(text) < 4000:
        return int(text)
    return [part.strip() for part in text.split(",") if part.strip()]


def _print_sweep(options: argparse.Namespace, frontier: Frontier, interrupted: bool, from_cache: int) -> int:
    lines = [str(frontier), f"{len(frontier.nondominated())} non-dominated, {format_seconds(frontier.seconds)}"]
    if from_cache:
        lines.append(f"{from_cache} of {len(frontier.solutions)} points found in the cache; --no-cache searches anew")
    if options.output and frontier.points:
        lines.append(written_to(frontier.save(options.output)))
    if interrupted:
        lines.append("interrupted: the points are the best known by then")
    elif not frontier.points and not isinstance(given := read_budgets(options.budgets), int):
        reachable = ", ".join(dict.fromkeys(map(reachable_budget, given)))
        lines.append(f"to go on, type: {retype_command(options, {'--budgets': reachable})}")
    document = {
        key: entry for key, entry in frontier.to_document(with_runs=False).items() if key not in ("format", "version")
    }
    document |= {"from_cache": from_cache, "interrupted": interrupted}
    put(options, document, "\n".join(lines))
    if interrupted:
        return NOT_IN_TIME if frontier.points else INTERRUPTED
    if not frontier.points:
        return INFEASIBLE if all(s.status is Status.INFEASIBLE for s in frontier.solutions) else NOT_IN_TIME
    return DONE if all(s.status in (Status.OPTIMAL, Status.INFEASIBLE) for s in frontier.solutions) else NOT_IN_TIME


def _describe(progress: SweepProgress) -> str:
    gap = "" if progress.widest_gap is None else f", widest gap {format_share(progress.widest_gap)}"
    return f"{progress.done} of {progress.points} points{gap}, {format_seconds(progress.seconds)}"


def ablation(options: argparse.Namespace) -> int:
    """Print the table of kinds and budgets, and write it where that was asked for.

    An interrupt ends the search, not the command: what is known once the present step ends is printed and written.
    """
    require_outputs(options)
    graph, kinds = _graph(options)
    stopped = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(
            rx.ablation,
            graph,
            read_budgets(options.budgets),
            kinds,
            time_limit=options.time_limit,
            solver=options.solver,
            threads=options.threads,
            on_progress=lambda progress: say(options, str(progress)),
            cancelled=stopped.is_set,
            cache=not options.no_cache,
        )
        try:
            while not wait([running], TICK).done:
                pass
        except KeyboardInterrupt:
            stopped.set()
            say(options, "stopping")
        table = running.result()
    say(options, "")
    return _print_ablation(options, table, stopped.is_set())


def _graph(options: argparse.Namespace) -> tuple[Graph, tuple[str, ...] | None]:
    """The graph, captured with the kinds that are asked for, and those to try; None for all that it has."""
    chosen = options.implementations
    if is_graph_file(options.model):
        options.implementations = None
        graph = find_graph(options)
        return graph, None if chosen in (None, "all") else _kinds_of_graph(chosen, graph)
    options.implementations = chosen or "all"
    graph = find_graph(options)
    if chosen in (None, "all", "exact"):
        return graph, None
    return graph, tuple(kind for kind in read_kinds(chosen) if kind in graph.kinds)


def _kinds_of_graph(text: str, graph: Graph) -> tuple[str, ...]:
    """Kinds of a graph file; they may be others than those that can be captured."""
    if text == "exact":
        return tuple(kind for kind in read_kinds(text) if kind in graph.kinds)
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _print_ablation(options: argparse.Namespace, found: Ablation, interrupted: bool) -> int:
    solutions = list(found.solutions.values())
    lines = [str(found), f"{len(found.sets)} sets of kinds, {format_seconds(found.seconds)}"]
    if options.output:
        lines.append(written_to(found.save(options.output)))
    if options.figure:
        from remat_explorer.figures import ablation as draw

        write_text(options.figure, draw(found).to_html())
        lines.append(f"drawn in {one_line(options.figure)}")
    if interrupted:
        lines.append("interrupted: the points are the best known by then")
    document = {
        key: entry for key, entry in found.to_document(with_runs=False).items() if key not in ("format", "version")
    }
    put(options, document | {"interrupted": interrupted}, "\n".join(lines))
    settled = all(solution.status in (Status.OPTIMAL, Status.INFEASIBLE) for solution in solutions)
    if not any(solution.schedule for solution in solutions):
        return INTERRUPTED if interrupted else INFEASIBLE if settled else NOT_IN_TIME
    return DONE if settled and not interrupted else NOT_IN_TIME
