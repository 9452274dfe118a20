"""Models of libraries that nobody here wrote, trained within their smallest budget and compared with plain PyTorch.

    pip install --no-deps torchvision timm diffusers segmentation-models-pytorch pillow huggingface_hub einops
    pip install --no-deps monai torch_geometric xxhash psutil aiohttp neuraloperator tensorly tensorly-torch opt_einsum
    pip install --no-deps e3nn opt_einsum_fx vector-quantize-pytorch einx torch-einops-utils x-transformers loguru
    pip install --no-deps open_clip_torch ftfy regex spikingjelly torchdiffeq torchaudio ultralytics speechbrain
    pip install --no-deps hyperpyyaml frozendict fonttools opencv-python-headless ultralytics-thop py-cpuinfo
    pip install --no-deps ruamel.yaml sentence-transformers scikit-learn joblib threadpoolctl geoopt pykan
    pip install --no-deps stable-baselines3 gymnasium farama-notifications cloudpickle pandas kornia kornia_rs mambapy
    pip install --no-deps denoising-diffusion-pytorch ema-pytorch matplotlib contourpy cycler kiwisolver pyparsing
    python benchmarks/field.py
    python benchmarks/field.py timm:volo diffusers    (these alone)
    python benchmarks/field.py --again                (not only what the file of results does not have)
    python benchmarks/field.py --page                 (puts what the file of results has into docs/models.md)

The libraries are no dependencies; install them where nothing depends on what they bring. A case is one of
`field_models.LIBRARIES`, `field_domains.DOMAINS` or `field_research.RESEARCH`, and runs in a process of its own: a
step in plain PyTorch, and one of `rx.rematerialize` with budget="smallest", from the same random state. The loss is the
mean of the squares of all outputs. Loss, gradients, buffers and random state must be equal bit for bit, and the
measured peak within the budget. The time of a step is CPU time beside that of plain PyTorch, medians of five in turn;
the cost is what the plan predicts. Where two steps of plain PyTorch from the same state differ, one thread is used.
The outcomes:

- exact: so it is;
- refused: an error of ours in words, as for control flow that depends on data;
- differs, exceeds, fails: not so. The benchmark then leaves with 1;
- late: not ready in the time of a case;
- plain PyTorch fails: no case.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import subprocess
import sys
import textwrap
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from field_domains import DOMAINS
from field_models import LIBRARIES, declare_operators_of_torchvision
from field_research import RESEARCH
from report import fill, kept, publish, write
from torch import nn

import remat_explorer as rx
from remat_explorer.capture import detached_inputs
from remat_explorer.capture.memory_meter import memory_meter
from remat_explorer.errors import RematError
from remat_explorer.quantities import format_bytes, format_overhead

COLUMNS = (
    "library",
    "model",
    "outcome",
    "n",
    "plain peak",
    "smallest budget",
    "measured",
    "cost",
    "time",
    "seconds",
    "remark",
)
MODELS = LIBRARIES | DOMAINS | RESEARCH
DEFECTS = ("differs", "exceeds", "fails")
PAGE = Path(__file__).parents[1] / "docs" / "models.md"
BEGIN, END = "<!-- field: begin -->", "<!-- field: end -->"
ONE_THREAD = "with one thread: with more, plain PyTorch differs from itself"  # where it adds by atomic operations
TANGENT = 4  # bytes of the gradient of the loss: measured, and among the resident bytes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=list(MODELS), metavar="LIBRARY or LIBRARY:MODEL")
    parser.add_argument("--time-limit", type=float, default=4.0, help="of a search, seconds")
    parser.add_argument("--each", type=float, default=600.0, help="seconds of a case")
    parser.add_argument("--again", action="store_true", help="measure again what the file of results has")
    parser.add_argument("--page", action="store_true", help="run nothing; put the file of results into docs/models.md")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)  # in this process, as JSON
    options = parser.parse_args()
    if options.page:
        fill(PAGE, BEGIN, END, in_words(kept("field")))
        return 0
    _declared = declare_operators_of_torchvision()  # for as long as this runs
    if options.one:
        print(json.dumps(outcome(options.cases[0], options.time_limit)))
        return 0
    known = {row["case"]: row for row in kept("field")}
    for case in cases(options.cases):
        if options.again or case not in known:
            known[case] = in_a_process(case, options)
            print(" | ".join(cells(known[case])), flush=True)
            write("field", COLUMNS, [cells(known[key]) for key in sorted(known)], [known[key] for key in sorted(known)])
    rows = [known[key] for key in sorted(known)]
    publish("field", COLUMNS, [cells(row) for row in rows], rows, time_limit=options.time_limit)
    counts = Counter(row["outcome"] for row in rows)
    print(", ".join(f"{outcome} {count}" for outcome, count in counts.most_common()))
    return int(any(counts[outcome] for outcome in DEFECTS))


def in_words(rows: Sequence[dict[str, Any]]) -> str:
    """What the page says of the cases: how many there are of each library, and what came of them."""
    ran = [row for row in rows if row["outcome"] != "plain PyTorch fails"]
    counts = Counter(row["outcome"] for row in ran)
    of_library: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in ran:
        of_library[row["case"].partition(":")[0]][row["outcome"]] += 1
    others = [f", {count} {outcome}" for outcome, count in counts.items() if outcome not in ("exact", "refused")]
    said = (
        "`benchmarks/field.py` trains models that nobody here wrote, each in a small size, at the smallest budget that "
        f"a short search finds, beside plain PyTorch. Of {len(ran)} models of {len(of_library)} libraries "
        f"{counts['exact']} stay within the budget, measured, with loss, gradients, buffers and random state equal bit "
        f"for bit; {counts['refused']} refused in words{''.join(others)}.{_price(ran)}"
    )
    each = [f"{name} {found['exact']} of {found.total()}" for name, found in sorted(of_library.items())]
    return "\n\n".join(
        textwrap.fill(text, 150, break_on_hyphens=False) for text in (said, f"By library: {', '.join(each)}.")
    )


def _price(rows: Sequence[dict[str, Any]]) -> str:
    """How long the plans took to make, and what they cost."""
    planned = [row for row in rows if row["outcome"] == "exact" and "cost" in row]
    if not planned:
        return ""
    seconds, costs = ([row[key] for row in planned] for key in ("seconds", "cost"))
    memory = [row["measured"] / row["plain"] for row in planned]
    times = [row["time"] for row in planned if "time" in row]
    return (
        f" In the median a step needs {100 * statistics.median(memory):.0f} % of plain PyTorch's memory, for "
        f"{format_overhead(statistics.median(costs))} of predicted cost ({format_overhead(max(costs))} at most); its "
        f"plan was ready after {statistics.median(seconds):.0f} s ({max(seconds):.0f} s at most). Of {len(times)} of "
        f"them the time was measured, too: {statistics.median(times):.1f} times the processor time of plain PyTorch "
        "in the median."
    )


def cases(asked: list[str]) -> Iterator[str]:
    """LIBRARY:MODEL for everything that was asked for."""
    for name in asked:
        library, _, model = name.partition(":")
        yield from [name] if model else (f"{library}:{model}" for model in MODELS[library]())


def in_a_process(case: str, options: argparse.Namespace) -> dict[str, Any]:
    """The row of a case."""
    command = [sys.executable, __file__, "--one", case, "--time-limit", str(options.time_limit)]
    row: dict[str, Any] = {"case": case}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=options.each, check=False)
    except subprocess.TimeoutExpired:
        return row | {"outcome": "late", "remark": f"after {options.each:.0f} s"}
    if done.returncode:
        return row | {"outcome": "fails", "remark": (done.stderr.strip().splitlines() or ["no word"])[-1]}
    return row | json.loads(done.stdout.splitlines()[-1])


class Whole(nn.Module):
    """A model that returns its loss: the mean of the squares of all outputs."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        outputs = [*tensors(self.model(*args, **kwargs))]
        return torch.stack([output.float().square().mean() for output in outputs]).sum()


def tensors(output: Any) -> Iterator[torch.Tensor]:
    """Every tensor of an output, of any structure, that has a gradient."""
    if isinstance(output, torch.Tensor):
        if output.requires_grad:
            yield output
        return
    parts = output if isinstance(output, list | tuple) else output.values() if isinstance(output, dict) else []
    parts = parts or list(getattr(output, "__dict__", {}).values())
    for part in parts:
        yield from tensors(part)


def outcome(case: str, time_limit: float) -> dict[str, Any]:
    """What comes of a case."""
    library, _, name = case.partition(":")
    torch.manual_seed(0)
    remark = ""
    try:
        model, (args, kwargs) = MODELS[library]()[name]()
        trained = Whole(model.train())
        plain, twin = copy.deepcopy(trained), copy.deepcopy(trained)
        expected = step_of(plain, args, kwargs)
        step_of(twin, args, kwargs)
        if gradients_that_differ(twin, plain):
            torch.set_num_threads(1)
            plain, remark = copy.deepcopy(trained), ONE_THREAD
            expected = step_of(plain, args, kwargs)
    except Exception as error:  # a library may raise anything
        return {"outcome": "plain PyTorch fails", "remark": f"{type(error).__name__}: {error}".splitlines()[0]}
    state = torch.get_rng_state()
    begun = time.monotonic()
    try:
        made = rx.rematerialize(trained, args, kwargs, budget="smallest", time_limit=time_limit)
    except RematError as error:
        return {"outcome": "refused", "remark": str(error)}
    solution = made.rematerialization.solution
    found: dict[str, Any] = {
        "operations": solution.graph.n,
        "budget": solution.budget,
        "cost": solution.overhead,
        "seconds": time.monotonic() - begun,
    }
    loss = step_of(made, args, kwargs)
    wrong = [] if torch.equal(loss, expected) else ["loss"]
    wrong += [] if torch.equal(state, torch.get_rng_state()) else ["random state"]
    wrong += gradients_that_differ(trained, plain)
    theirs = dict(plain.named_buffers())  # with those, not saved with the model, that forward makes to keep constants
    wrong += [name for name, buffer in trained.named_buffers() if not torch.equal(buffer, theirs[name])]
    wrong += [] if trained.state_dict().keys() == plain.state_dict().keys() else ["state_dict"]
    resident = solution.graph.resident_bytes - TANGENT - constant_bytes(made, args, kwargs)
    found["measured"] = resident + peak_of(made, args, kwargs)
    found["plain"] = resident + peak_of(plain, args, kwargs)
    found["time"] = time_of(made, plain, args, kwargs)
    if wrong:
        return found | {"outcome": "differs", "remark": f"{len(wrong)}, such as {wrong[0]}"}
    return found | {"outcome": "exact" if found["measured"] <= found["budget"] else "exceeds", "remark": remark}


def gradients_that_differ(mine: nn.Module, theirs: nn.Module) -> list[str]:
    """Names of parameters whose gradients are not the same bit for bit in two copies of a model."""
    pairs = zip(mine.named_parameters(), theirs.parameters(), strict=True)
    return [name for (name, one), other in pairs if not equal(one.grad, other.grad)]


def constant_bytes(made: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Bytes that count as resident, but are made in each step: of constants, such as positions."""
    program = made.rematerialization.plans[-1].code.program
    registers = program.bind(made.rematerialization.model, detached_inputs(args, kwargs), tangents=False)
    made_first = [registers[node].untyped_storage() for body in program.prologue for node in body.outputs.values()]
    return sum({storage._cdata: storage.nbytes() for storage in made_first}.values())


def equal(mine: torch.Tensor | None, theirs: torch.Tensor | None) -> bool:
    """Whether two gradients are the same bit for bit, or both None."""
    if mine is None or theirs is None:
        return mine is theirs
    return torch.equal(mine, theirs)


def step_of(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    """The loss of a step from the same random state every time; gradients are left."""
    torch.manual_seed(3)
    loss = model(*args, **kwargs)
    loss.backward()
    return loss.detach()


def peak_of(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """The most bytes that a step takes beside what is there before it."""
    model.zero_grad()
    with memory_meter(torch.device("cpu")) as meter, meter.section():
        step_of(model, args, kwargs)
    return meter.readings[-1].highest - meter.readings[-1].before


def time_of(made: nn.Module, plain: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """CPU time of a step in a plan, divided by that in plain PyTorch."""
    seconds: dict[nn.Module, list[float]] = {made: [], plain: []}
    for _ in range(5):
        for model, times in seconds.items():
            begun = time.process_time()
            step_of(model, args, kwargs)
            times.append(time.process_time() - begun)
    return statistics.median(seconds[made]) / statistics.median(seconds[plain])


def cells(row: dict[str, Any]) -> list[str]:
    """What the table shows."""
    library, _, name = row["case"].partition(":")
    shown = [library, name, row["outcome"]]
    if "budget" in row:
        shown += [f"{row['operations']:,}", format_bytes(row["plain"]), format_bytes(row["budget"])]
        shown += [format_bytes(row["measured"]), format_overhead(row["cost"])]
        shown += [f"{row['time']:.2f}" if "time" in row else "", f"{row['seconds']:.0f}"]
    else:
        shown += [""] * 7
    return [*shown, row["remark"][:80].replace("|", "/").replace("\n", " ")]


if __name__ == "__main__":
    sys.exit(main())
