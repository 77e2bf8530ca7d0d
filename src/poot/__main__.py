"""`python -m poot`: the command line."""

from poot.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
