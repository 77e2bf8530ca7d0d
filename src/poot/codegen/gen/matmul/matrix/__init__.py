"""Products on matrix units, by subgroups (`fragments.py`) and by warpgroups (`ring.py`)."""
