"""poot within PyTorch: `import poot.torch` makes `torch.compile(model, backend="poot")` known, and
has what puts poot's programs into torch's.

This module imports torch; poot alone doesn't."""

from poot.extras import refuse_missing

try:
    from poot.frontends.torch.backend import Backend, register
    from poot.frontends.torch.op import CustomOp, as_custom_op
    from poot.frontends.torch.paged import paged_decode
    from poot.frontends.torch.program import from_torch
except ModuleNotFoundError as e:
    refuse_missing(e, "poot.torch")

__all__ = ["Backend", "CustomOp", "as_custom_op", "from_torch", "paged_decode"]

register()
