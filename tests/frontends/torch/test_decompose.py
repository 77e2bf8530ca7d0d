"""What is taken apart before it is read, and what stays whole."""

from __future__ import annotations

import torch
from torch import nn

from poot.frontends.torch.decompose import KEPT, decomposed, decompositions


class Attends(nn.Module):
    def forward(self, q: torch.Tensor) -> torch.Tensor:
        q = nn.functional.layer_norm(q, (8,))
        return nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)


def test_attention_stays_one_call():
    program = torch.export.export(Attends(), (torch.zeros(1, 2, 5, 8),))
    ops = [str(n.target) for n in decomposed(program).graph.nodes if n.op == "call_function"]
    assert "aten.scaled_dot_product_attention.default" in ops
    assert "aten.native_layer_norm.default" in ops


def test_what_is_no_program_comes_back():
    assert decomposed(3) == 3


def test_the_table_for_graphs_keeps_the_same_ops():
    names = {str(op) for op in decompositions()}
    assert not names & {f"aten.{name}" for name in KEPT}
    assert "aten.silu.default" in names
