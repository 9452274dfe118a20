"""The table of docs/papers.md: each item in five short cells; what is longer stands on the item's page of the site.

Numbers in a cell of ours are numbers of the outcome's own words, as its results file has them; a test looks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reproduction.item import Item, table_of
from reproduction.items import ITEMS

TABLE_BEGINS = "<!-- table: python benchmarks/papers.py --table -->"
TABLE_ENDS = "<!-- end of the table -->"
MOST_WORDS = 25  # of a cell
HEADS = ("item", "ours", "published", "like for like", "read")
UNITS = {  # of each paper, and of its table
    "Checkmate": "GB are 10^9 bytes, here as in the authors' artifact.",
    "MONeT": "GiB and MiB are 2^30 and 2^20 bytes. The paper writes GB for GiB.",
    "POET": "On devices of a few hundred kilobytes; what is least is energy.",
}


@dataclass(frozen=True)
class Brief:
    """An item in three cells: what was found here, what the paper has, and whether the two may be compared."""

    ours: str
    published: str
    alike: str


BRIEFS: dict[str, Brief] = {
    "checkmate-figure-1": Brief(
        "Keeping everything 30.1 GB; 8.3 GB suffice at +24.7 %, proven best.",
        "30 GB; 21 GB less at a modest increase in time.",
        "No: layers are ours, costs a V100's published rates.",
    ),
    "checkmate-figure-2": Brief(
        "U-Net: 71 operations; a schedule within 11 GB at +5.1 %, a plan of 174 statements, a graph of 87 operations.",
        "A diagram: graph, program (9), plan, new graph.",
        "In kind. The new graph is drawn; `rx.compile` builds one.",
    ),
    "checkmate-figure-3": Brief(
        "Features and their gradients are 87.6 % to 99.0 % of the peak in 6 networks.",
        "Features far outweigh parameters; the memory of GPUs is quickly used up.",
        "First half, in kind: the text gives no numbers. The second is not reproduced.",
    ),
    "checkmate-table-1": Brief(
        "33 methods; `griewank` runs as many steps as REVOLVE's formula in 527 of 527 cases.",
        "Of ten methods Checkmate's two alone take general graphs, costs and memory into account.",
        "Yes, with methods that came later.",
    ),
    "checkmate-figure-4": Brief(
        "U-Net: (5) frees 784 of 5041 pairs, none twice; without its last factor 79 would be.",
        "A diagram, and that no value is freed twice in a stage.",
        "Yes: Theorem 4.1, on three networks.",
    ),
    "checkmate-section-4-6": Brief(
        "Partitioned, 26 is proven in 4.0 s; unpartitioned, a gap of 34.6 % is left after 50 min 48 s.",
        "9.4 hours unpartitioned, 0.23 seconds partitioned.",
        "The problem, yes; the seconds, no: HiGHS on one thread, not Gurobi. The paper has 26 "
        "by appendix A's gaps alone.",
    ),
    "checkmate-section-5-1": Brief(
        "VGG16: 0 of 50000 draws fit in 14.26 GB, 116 in 14.79 GB; keeping everything takes 16.93 GB.",
        "None of 50,000 fits at a budget four times smaller than the default.",
        "No: batch and default are not printed; a fourth has no schedule here.",
    ),
    "checkmate-table-2": Brief(
        "Two-phase rounding 1.003, 1.000, 1.000, 1.681, 1.092 times the cheapest known at 4, 5, 6, 1, 2 of 6 "
        "budgets; Griewank 1.001 to 1.422.",
        "Two-phase rounding at most 1.06; Griewank 1.44 to 7.07 (MobileNet). Order: MobileNet, VGG16, "
        "VGG19, U-Net, ResNet-50.",
        "Partly: FLOPs as in the paper, budgets not printed. Two means agree to the last digit.",
    ),
    "checkmate-table-2-moves-charged": Brief(
        "Where moving bytes costs something, U-Net's rounding is at 1.000, at 2 of 6 budgets.",
        "As Table 2.",
        "Partly: the published order comes back on U-Net alone; ResNet-50's stays reversed.",
    ),
    "checkmate-figure-5": Brief(
        "Proven best at 12, 8 and 10 of 12 budgets (VGG16, MobileNet, U-Net); within 16 GB linearized greedy costs "
        "1.203 times as much, √n 1.298.",
        "The solver is cheapest everywhere; on U-Net at 16 GB linearized greedy is 1.20 times as slow, √n 1.38.",
        "No: FLOPs, and a P100 for VGG16, not a V100's profile. U-Net's 23 GB agree (23.05).",
    ),
    "checkmate-figure-6": Brief(
        "VGG19 289, MobileNet 1231, U-Net 61, SegNet 61, FCN8 57, all proven largest; ResNet50 936, at most 983.",
        "289, 1105, 61; in the artifact's README at least 62, 60 and 193.",
        "Yes, FCN8 on a graph made by the same rules. SegNet's 62 and FCN8's 60 do not fit.",
    ),
    "checkmate-figure-7": Brief(
        "VGG19 in 16 GB: 181 with everything kept, 213 by Chen's rule, 289.",
        "167, 197 and 289, in 10 seconds.",
        "Yes: 167 and 197 follow if parameters are counted twice.",
    ),
    "checkmate-figure-8": Brief(
        "Rounding at one half costs +0.0 %, +0.3 %, +68.1 %; random draws +1.3 %, +0.3 %, +161.8 % in the mean.",
        "Deterministic rounding is consistently cheaper.",
        "It agrees, in kind: FLOPs, and batches are not named.",
    ),
    "checkmate-appendix-a": Brief(
        "26 over 22 and over 1.206107: 1.18 and 21.56.", "1.18 with stages, 21.56 without.", "Yes, to the last digit."
    ),
    "checkmate-appendix-c": Brief(
        "All 10105 programs of up to 6 operations take one byte more than registers.",
        "k registers suffice where k + 1 bytes do; the decision is NP-complete.",
        "The reduction, yes. The hardness is Sethi's, and not checked.",
    ),
    "checkmate-talk": Brief(
        "Program (9) takes 8 times as long as rounding on VGG16, 42 on MobileNet, more than 5 on ResNet50.",
        "43 times for ResNet-50, 440 for MobileNet.",
        "No: the slide names neither budgets nor seconds.",
    ),
    "monet-table-1": Brief(
        "At 10 % overhead, by the authors' runs 0.381, 0.462, 0.366, less than 0.391 and 0.347; by a roofline 0.344, "
        "0.210, 0.335, 0.309, 0.492.",
        "0.377, 0.463, 0.364, 0.390, 0.331: ResNet-50, GoogLeNet, U-Net, VGG-16, MobileNet-V2.",
        "Their runs, yes; the roofline, no: predicted, without workspace. On their own costs: Figure 3.",
    ),
    "monet-figure-3": Brief(
        "At 5 GiB ResNet-50 +11.9 %, GoogLeNet +14.5 %, U-Net +10.5 %, MobileNet-V2 +8.9 %; VGG-16 +9.2 % at 5.5 GiB.",
        "A third of the memory at 9 to 16 %; up to 34 % faster than Checkmate.",
        "Yes, on the authors' costs; theirs were then measured. Checkmate takes up to 35.8 % longer; seen from "
        "there, MONeT takes 26.3 % less.",
    ),
    "monet-figure-3-by-a-roofline": Brief(
        "Checkmate needs 65 % of VGG-16's memory, with implementations 40% suffice; ResNet-50 +12.8 % at 30%.",
        "VGG-16 in 5.5 GiB, Checkmate in 7.",
        "No: a P100's published rates.",
    ),
    "monet-section-5": Brief(
        "By their logs MONeT is within 2 % after an hour in 27 of 30 runs, 10 of which had ended; at most 3.5 %.",
        "Within 1 to 2 % after an hour; at tighter budgets Checkmate has none of ResNet-50 and GoogLeNet by then.",
        "Yes, their logs. Seconds of ours are on other costs.",
    ),
    "monet-figure-4": Brief(
        "At 8 GiB all kinds together cost least: +5.5 %, +8.4 %, -2.0 %; without any +10.1 %, +11.8 %, +34.6 %.",
        "Overhead is lowest only with all optimizations together.",
        "Yes, on the authors' costs; 60 s in place of a day.",
    ),
    "monet-figure-5": Brief(
        "ResNet-50: 14.7 GiB with everything kept; within 8.00 GiB +5.0 %.",
        "14.7 GiB, and a peak of 8 GiB.",
        "Yes, on the authors' costs; the third curve is Checkmate, not MONeT without implementations.",
    ),
    "monet-figure-6": Brief(
        "At most the published objective in 24 of 36 runs without joint algorithms, 20 of 28 with; else 0.430 % more.",
        "All kinds together cost least at every memory.",
        "Yes, on the authors' costs; our problem is somewhat wider.",
    ),
    "monet-figure-6-by-a-roofline": Brief(
        "All kinds: ResNet-50 +6.5 %, GoogLeNet -1.4 %, U-Net +16.8 %, VGG-16 +0.3 %, MobileNet-V2 +20.3 %.",
        "All together cost least at every memory.",
        "No: kinds of this project, published rates, no algorithms of convolutions.",
    ),
    "monet-figure-7": Brief(
        "On the P100 the fastest of 7 takes 3.95 ms with 662 MiB, the smallest 12.8 ms with 0 B.",
        "Seven algorithms; more memory is not always faster.",
        "Yes, at batch 184 in place of 256; the second part is a CPU's.",
    ),
    "poet": Brief(
        "Linear network 0.10467864 to 0.10491297 J within 7416 to 3256 B; ResNet-18: A72 7.88951 J, unpaged, "
        "M4 0.55639 J, at least 0.55075 J.",
        "7.8 J of computing and 0.001 J of paging, called optimal.",
        "Yes: its graphs, its equations, HiGHS. Keeping everything fits, so paging cannot be optimal.",
    ),
}


def overview() -> str:
    """A Markdown table for each paper, under its name and its units.

    >>> overview().splitlines()[0]
    '### Checkmate'
    """
    parts = []
    for paper, units in UNITS.items():
        rows = [_cells(key) for key, item in ITEMS.items() if item.paper == paper]
        lines = "\n".join(f"| {' | '.join(cells)} |" for cells in (HEADS, ["---"] * len(HEADS), *rows))
        parts.append(f"### {paper}\n\n{units}\n\n{lines}")
    return "\n\n".join(parts)


def _cells(key: str) -> list[str]:
    item, brief = ITEMS[key], BRIEFS[key]
    notebook = f"[{item.notebook.partition('_')[0]}](../notebooks/{item.notebook})"
    return [f"{item.place}, `{key}`", brief.ours, brief.published, brief.alike, notebook]


def item_text(item: Item, entry: Mapping[str, Any] | None) -> str:
    """The item's page of the site, in Markdown, down to its figure.

    Args:
        item: of a paper.
        entry: what the results file has of it, with ``result``, ``rows``, ``settings`` and ``complete``; None if it was
            not run.

    >>> item_text(ITEMS["checkmate-appendix-a"], None).splitlines()[0]
    '# Checkmate, appendix A: the integrality gap'
    """
    said, data = "Not run yet.", ""
    if entry is not None:
        notes = ["with small settings"] if entry["settings"] != "full" else []
        notes += [] if entry["complete"] else ["interrupted"]
        points = [f"- {sentence}" for sentence in re.split(r"(?<=\.) (?=\S)", entry["result"])]
        said = "\n".join(points) + (f" ({', '.join(notes)})" if notes else "")
        data = f"\n\n<details><summary>The numbers</summary>{table_of(entry['rows'])}</details>"
    parts = [
        f"# {item.name}: {item.title}",
        f"`python -m reproduction {item.key}`. [All items](../docs/papers.md), "
        f"[notebook](../notebooks/{item.notebook}), `{item.function}`, [test](../{item.test}).",
        f"## Our result\n\n{said}{data}",
        "## Published\n\n" + "\n".join(f"- {statement}" for statement in item.published.split("; ")),
        f"## Remark\n\n{item.remark}",
        "## With small settings",
    ]
    return "\n\n".join(parts)
