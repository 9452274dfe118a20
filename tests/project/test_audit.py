"""`make audit`: what it says of pip-audit's report, and where there is none."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project.pages import ROOT

GOOD = '{"name": "good", "version": "1", "vulns": []}'
WEAK = '{"name": "weak", "version": "2", "vulns": [{"id": "X-1", "fix_versions": ["3"]}]}'
SKIPPED = '{"name": "skipped", "skip_reason": "not found"}'


def audit(folder: Path, report: str | None) -> tuple[int, str]:
    """Exit code and text of the tool with a pip-audit that writes this report, or fails."""
    program = folder / "pip-audit"
    write = f"echo '{report}' > \"${{out#--output=}}\"" if report else "echo 'ERROR: no network' >&2; exit 1"
    program.write_text(f'#!/bin/sh\nfor a in "$@"; do case "$a" in --output=*) out="$a";; esac; done\n{write}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    command = [sys.executable, str(ROOT / "tools" / "audit.py"), str(program), "constraints.txt"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("entries", "code", "said"),
    [
        ([GOOD], 0, "1 of 1 versions were audited; 0 have known weaknesses."),
        ([GOOD, WEAK, SKIPPED], 1, "weak 2: X-1, mended in ['3']"),
        ([GOOD, SKIPPED], 2, "1 could NOT be audited, so nothing is known of them: skipped"),
    ],
)
def test_what_was_not_asked_about_is_not_called_safe(entries: list[str], code: int, said: str, tmp_path: Path) -> None:
    found, text = audit(tmp_path, f'{{"dependencies": [{", ".join(entries)}]}}')
    assert found == code
    assert said in text


def test_without_a_network_it_says_that_nothing_was_audited(tmp_path: Path) -> None:
    code, text = audit(tmp_path, None)
    assert code == 2
    assert text.startswith("Nothing was audited: ERROR: no network.")
