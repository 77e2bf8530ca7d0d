"""poot for PyTorch programs; needs torch."""

from poot.frontends.torch.op import CustomOp, as_custom_op
from poot.frontends.torch.paged import paged_decode

__all__ = ["CustomOp", "as_custom_op", "paged_decode"]
