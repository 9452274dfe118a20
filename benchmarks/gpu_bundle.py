"""What a GPU machine without a network needs beside a checkout, as one folder of at most 60 MiB.

    python benchmarks/gpu_bundle.py .bundle
    python benchmarks/gpu_bundle.py .bundle --device cpu --tiny            # for a trial on a CPU
    python benchmarks/gpu_bundle.py .bundle --results results              # with what was measured there before

The folder gets wheels of the packages that such a machine lacks, in the versions of constraints.txt; this package's own
wheel; schedules that were solved here; and run_here.sh, which installs the wheels beside Python's packages and runs
benchmarks/gpu.py. What it prints last is the command line for that machine, in the root of the checkout.

Graphs are captured here, with the kernels of an H100 where the run is on CUDA. A schedule belongs to the structure of
its graph, so one that was solved here is used there only if the model has the same graph there, with the same version
of PyTorch best; the rest is solved there, and the table says which. An interrupted run goes on where it was.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path

from gpu_parts.catalogue import PARTS
from gpu_parts.wheels import LARGEST, PYTHON, download, script, size_of

from remat_explorer.errors import RematError
from remat_explorer.quantities import format_bytes

ROOT = Path(__file__).parents[1]
RESULTS = "results"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", nargs="*", help="whose schedules are solved here; default: all")
    parser.add_argument("--time-limit", type=float, default=10.0, help="seconds for each schedule (default: 10)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="of the run (default: cuda)")
    parser.add_argument("--tiny", action="store_true", help="small models, for a trial")
    parser.add_argument("--minutes", type=float, default=8.5, help="of one run there (default: 8.5)")
    parser.add_argument("--parts", help=f"of one run there, with commas between them; default: {','.join(PARTS)}")
    parser.add_argument("--results", type=Path, help="folder of an earlier run, which is resumed")
    parser.add_argument("--python", default=PYTHON, help=f"version there (default: {PYTHON})")
    options = parser.parse_args()
    try:
        make(options)
    except RematError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def make(options: argparse.Namespace) -> None:
    """Make the folder, say what is in it, and print the command."""
    folder: Path = options.folder.resolve()  # pip runs in another folder
    folder.mkdir(parents=True, exist_ok=True)
    download(folder / "wheels", ROOT / "constraints.txt", options.python)
    own_wheel(folder / "wheels")
    solve_all(options)
    if options.results is not None and options.results.resolve() != (folder / RESULTS).resolve():
        shutil.copytree(options.results, folder / RESULTS, dirs_exist_ok=True)
    asked = [f"--minutes {options.minutes:g}", f"--device {options.device}"]
    asked += ["--tiny"] if options.tiny else []
    asked += [f"--parts {options.parts}"] if options.parts else []
    path = folder / "run_here.sh"
    path.write_text(script(" ".join(asked)), encoding="utf-8")
    path.chmod(0o755)
    require_small(folder)
    print(f"there, in the root of the checkout:\n{command(folder)}")


def require_small(folder: Path) -> None:
    """Say how large each part of the bundle is, and refuse one that is too large."""
    bytes_of = {part.name: size_of(part) for part in sorted(folder.iterdir())}
    total = format_bytes(sum(bytes_of.values()))
    print(*(f"{name}: {format_bytes(count)}" for name, count in bytes_of.items()), f"in all: {total}", sep="\n")
    if sum(bytes_of.values()) > LARGEST:
        raise RematError(f"the bundle has {total}, more than {format_bytes(LARGEST)}; remove schedules of some models")


def command(folder: Path) -> str:
    """The command line of a machine on which the folder lies at the same place in the checkout.

    >>> command(Path(".bundle"))
    'bash .bundle/run_here.sh "${OUT:-gpu_results}"'
    """
    place = folder.resolve()
    shown = place.relative_to(ROOT) if place.is_relative_to(ROOT) else folder
    return f'bash {shown}/run_here.sh "${{OUT:-gpu_results}}"'


def own_wheel(folder: Path) -> None:
    """The wheel of this package: it tells versions there, while the files of the checkout are what runs."""
    for old in folder.glob("remat_explorer-*.whl"):
        old.unlink()
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT)], check=True, cwd=folder
    )


def solve_all(options: argparse.Namespace) -> None:
    """Schedules of every model, each written when it is there."""
    from gpu_parts.models import VALIDATED, names
    from gpu_parts.solved_here import solve_model

    everything = dict.fromkeys((*VALIDATED, *names(options.tiny)))  # each once
    for name in everything if options.models is None else options.models:
        begun = time.monotonic()
        said = solve_model(options.folder, name, options.tiny, options.time_limit, options.device)
        print(f"{name}: {said}, {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
