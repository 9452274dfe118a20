"""Ask whether weaknesses are known of the versions in constraints.txt, and say what could not be asked: `make audit`.

Exit codes: 0 every version was asked about and none has a known weakness; 1 some have; 2 some could not be asked about,
such as all of them without a network.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

FINE, WEAK, UNKNOWN = range(3)


def main(program: str, constraints: str) -> int:
    """Run pip-audit and print what it found.

    Args:
        program: pip-audit's path.
        constraints: path of the file of exact versions.
    """
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.json"
        options = ["--disable-pip", "--no-deps", "--progress-spinner=off", "--format=json", f"--output={found}"]
        ran = subprocess.run([program, *options, "-r", constraints], capture_output=True, text=True, check=False)
        if not found.exists():
            print(
                f"Nothing was audited: {_last_line(ran.stderr)}. A network is needed that reaches pip-audit's database."
            )
            return UNKNOWN
        code, lines = judge(json.loads(found.read_text(encoding="utf-8")))
    print("\n".join(lines))
    return code


def judge(report: dict[str, Any]) -> tuple[int, list[str]]:
    """The exit code and what is printed, of pip-audit's report.

    >>> judge({"dependencies": [{"name": "a", "version": "1", "vulns": []}]})
    (0, ['1 of 1 versions were audited; 0 have known weaknesses.'])
    """
    entries = report["dependencies"]
    skipped = [entry for entry in entries if "skip_reason" in entry]
    weak = [entry for entry in entries if entry.get("vulns")]
    lines = [
        f"{entry['name']} {entry['version']}: {weakness['id']}, mended in {weakness['fix_versions'] or 'no version'}"
        for entry in weak
        for weakness in entry["vulns"]
    ]
    asked = len(entries) - len(skipped)
    lines.append(f"{asked} of {len(entries)} versions were audited; {len(weak)} have known weaknesses.")
    if skipped:
        names = ", ".join(entry["name"] for entry in skipped)
        lines.append(f"{len(skipped)} could NOT be audited, so nothing is known of them: {names}.")
        lines.append(f"The first reason: {skipped[0]['skip_reason']}")
    return (WEAK if weak else UNKNOWN if skipped else FINE), lines


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["pip-audit said nothing"])[-1]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
