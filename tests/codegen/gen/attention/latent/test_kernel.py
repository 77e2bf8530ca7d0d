"""Whole latent decodes against the oracle, and what the assembler says of those of the card."""

from __future__ import annotations

from dataclasses import replace

import pytest

from poot.codegen.gen.lower import lower
from poot.codegen.ptx.emit import emit_ptx
from tests.support.latent import H200, Form, check, request_for
from tests.support.ptxas import assemble

FORMS = (
    Form(),
    Form("gathered", lengths=(70,), poison=True),
    Form("split", dtype="f16"),
    Form("paged", lengths=(100,), poison=True),
    Form(batch=2, keys=64, lengths=(3, 64), poison=True),
    Form(keys=10, lengths=(0,)),
    Form(mask="hk", sink=True, lse=True),
    Form(attrs="softcap=3.0"),
    Form(attrs="causal=99 window=80"),
    Form(is_made=True),
    Form(heads=66, keys=70),
    Form(keys=65, width=576, value_width=512),
)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_latent_decode_is_the_oracles(form):
    assert check(form, replace(H200, compute_units=2)).schedule.name == "latent"
