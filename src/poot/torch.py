"""poot within PyTorch: `import poot.torch` makes `torch.compile(model, backend="poot")` known.

This module imports torch; poot alone doesn't."""

from poot.frontends.torch.backend import Backend, register
from poot.frontends.torch.program import from_torch

__all__ = ["Backend", "from_torch"]

register()
