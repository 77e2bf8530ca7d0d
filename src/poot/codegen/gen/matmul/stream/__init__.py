"""Schedule "stream": products of few rows at the speed of memory. `kernel.py` is the whole."""
