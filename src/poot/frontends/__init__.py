"""Programs that were written elsewhere, as graphs. `foreign.py` is what a front end reads a program
into, `lower.py` makes the graph by its table of ops, `imported.py` is what comes out."""
