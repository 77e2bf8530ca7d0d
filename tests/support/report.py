"""Run as `python -m tests.support.report`: what review should look at, though no rule is broken."""

from __future__ import annotations

from tests.support.sources import long_functions


def main() -> None:
    rows = long_functions(60)
    print(f"functions of more than 60 lines (80 is the limit): {len(rows) or 'none'}")
    for row in rows:
        print(f"  {row}")


if __name__ == "__main__":
    main()
