"""Progress as lines and as bars."""

from __future__ import annotations

import io

from poot.cli.progress import reporting


def test_lines_name_each_stage_once():
    out = io.StringIO()
    with reporting(out, bars=False) as report:
        for done in range(3):
            report("passes", done, 2)
        report("kernels", 0, 9)
        report("passes", 2, 2)
    assert out.getvalue() == "passes ...\nkernels ...\n"


class Terminal(io.StringIO):
    """A stream that says a person watches."""

    def isatty(self) -> bool:
        return True


def test_bars_show_each_stage_and_leave_nothing_behind():
    out = Terminal()
    with reporting(out, bars=True) as report:
        report("passes", 0, 2)
        report("passes", 2, 2)
        report("kernels", 3, 9)
    shown = out.getvalue()
    assert "passes" in shown
    assert "kernels" in shown
    assert "\x1b[2K" in shown[-200:]  # the last act is to clear the lines
