"""The packages that a machine with PyTorch, numba, networkx, tqdm and pytest lacks, and how they get there. No torch.

Each was found to be needed, in an environment that has only what such a machine has: for a solve by linear programs
python-mip with HiGHS, and what python-mip loads; for the cache folder platformdirs; for cuDNN's plans its front end.
CBC is left out: its wheel has 190 MB, and nothing here asks for it. So are JupyterLab and voila: an explorer that is
driven without a browser loads neither.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from remat_explorer.errors import RematError

NEEDED = {  # by the name in constraints.txt: what for
    "mip": "linear programs",
    "highspy": "HiGHS, which python-mip loads",
    "cffi": "python-mip's calls of HiGHS",
    "pycparser": "cffi",
    "platformdirs": "the folder of the cache",
    "lazy-loader": "the public names",
    "nvidia-cudnn-frontend": "cuDNN's plans of convolutions",
    "plotly": "the explorer's figures",
    "narwhals": "plotly",
    "anywidget": "the explorer",
    "psygnal": "anywidget",
    "ipywidgets": "the explorer",
    "comm": "ipywidgets",
    "traitlets": "ipywidgets",
    "ipython": "ipywidgets",
    "executing": "IPython",
    "asttokens": "IPython",
    "ipython_pygments_lexers": "IPython",
    "jedi": "IPython",
    "matplotlib-inline": "IPython",
    "parso": "IPython",
    "pexpect": "IPython",
    "prompt_toolkit": "IPython",
    "ptyprocess": "IPython",
    "pure_eval": "IPython",
    "stack-data": "IPython",
    "wcwidth": "IPython",
}
PYTHON = "3.12"
PLATFORMS = (*(f"manylinux_2_{minor}_x86_64" for minor in (28, 27, 24, 17)), "manylinux2014_x86_64")
LARGEST = 60 * 2**20  # bytes of a bundle


def versions(constraints: Path) -> dict[str, str]:
    """The version of each needed package in constraints.txt.

    Raises:
        RematError: if one is not there.
    """
    listed = dict(re.findall(r"^([\w.-]+)==(\S+)$", constraints.read_text(encoding="utf-8"), flags=re.MULTILINE))
    if absent := [name for name in NEEDED if name not in listed]:
        raise RematError(f"{str(constraints)!r} has no version of {', '.join(absent)}, which the bundle needs")
    return {name: listed[name] for name in NEEDED}


def download(folder: Path, constraints: Path, python: str = PYTHON) -> None:
    """Have pip fetch the wheels for x86-64 Linux and a version of Python, and remove other versions of them.

    Raises:
        RematError: if pip cannot.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wanted = versions(constraints)
    for path in folder.glob("*.whl"):
        if not any(is_wheel_of(path.name, name, version) for name, version in wanted.items()):
            path.unlink()
    names = [path.name for path in folder.glob("*.whl")]
    missing = {n: v for n, v in wanted.items() if not any(is_wheel_of(name, n, v) for name in names)}
    if not missing:
        return
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", str(folder)]
    command += ["--python-version", python, "--implementation", "cp"]
    command += [argument for platform in PLATFORMS for argument in ("--platform", platform)]
    command += [f"{name}=={version}" for name, version in missing.items()]
    if subprocess.run(command).returncode:
        raise RematError(f"pip could not fetch {', '.join(missing)} for Python {python}; its own words are above")


def is_wheel_of(file: str, name: str, version: str) -> bool:
    """Whether a wheel is that of a package in a version.

    >>> is_wheel_of("nvidia_cudnn_frontend-1.32.0-cp312-cp312-linux.whl", "nvidia-cudnn-frontend", "1.32.0")
    True
    """
    return file.lower().startswith(f"{re.sub('[-_.]+', '_', name)}-{version}-".lower())


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    return path.stat().st_size if path.is_file() else sum(p.stat().st_size for p in path.rglob("*") if p.is_file())


def script(options: str) -> str:
    """The shell script of the bundle: installs the wheels into a folder of their own, and runs benchmarks/gpu.py.

    Results of an earlier run that lie in the bundle are copied to where the new ones go, and resumed.

    Args:
        options: of benchmarks/gpu.py; what is given to the script behind its folder comes after them.
    """
    return f"""#!/bin/bash
# bash run_here.sh FOLDER [OPTIONS]: measure, and write the results to FOLDER; in the root of a checkout.
set -eu
bundle=$(cd "$(dirname "$0")" && pwd)
out=${{1:?give the folder of the results}}
shift
python=${{PYTHON:-python3}}
site=${{SITE:-/tmp/remat_explorer_site}}
options="-q --no-index --no-deps --no-compile --no-cache-dir --upgrade"
"$python" -m pip install $options --target "$site" "$bundle"/wheels/*.whl
mkdir -p "$out"
if [ -d "$bundle/results" ]; then cp -n "$bundle"/results/*.json "$out"/; fi
export PYTHONPATH="$PWD:$site" PYTHONUNBUFFERED=1
exec "$python" benchmarks/gpu.py --out "$out" --bundle "$bundle" --resume {options} "$@"
"""
