"""docs/families.md: what explain says of every family's attentions. `python -m
tests.support.family_page` writes it; `tests/house/test_families.py` compares it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from poot.ir.graph import Eqn, Graph
from poot.limits import profile
from poot.llm.layout import Layout
from poot.llm.models.paged_decoder import paged_decoder_graphs
from poot.passes.pipeline import run_pipeline
from tests.support.everywhere import eqns_of
from tests.support.hf_run import Tiny, tiny
from tests.support.hf_tiny import TINY
from tests.support.sources import ROOT

PAGE = ROOT / "docs/families.md"
LIMITS = "h200"
LAYOUT = Layout(blocks=8, capacity=64, decode_rows=(2,), prefill=((1, 16),))
ENTRIES = {
    "decode": "a token", "prefill_16": "a chunk",
    "decode_2": "two tokens, pools", "prefill_1x16": "a chunk, pools",
}  # fmt: skip
HEAD = f"""# Families and their attentions

Made by `python -m tests.support.family_page` from the reports of the attention pass, which
`explain` prints, for the profile `{LIMITS}`; a test holds the page to them. The models are
those that [tests compare](models.md) with `transformers`: each family's own parts at sizes of
a few kilobytes, with a cache of {LAYOUT.capacity} positions.

- *fused*: attentions that became one eqn, of the model's layers; what is declined would be said.
- *heads* and *width*: query heads to key heads, elements of a key to elements of a value.
- *live*: keys past the length are not visited. *paged*: keys and values are read in the pools.
- *shared 8*: the last 8 elements of each key are one row for all heads.
- *mask*: a window, or the rows of a chunk; *mask a head*: ALiBi.

| model | step | fused | heads | width | form |
|---|---|---|---|---|---|
"""


def page() -> str:
    """The whole page."""
    rows = [row for name in TINY for row in _rows(name)]
    return HEAD + "\n".join(rows) + "\n"


def _rows(name: str) -> Iterator[str]:
    given, stem = tiny(name), TINY[name][0]
    for entry, graph in _graphs(given).items():
        final, reports = run_pipeline(graph, profile(LIMITS))
        fused = [eqn for eqn in eqns_of(final) if eqn.op == "attention"]
        declined = [n.what for r in reports if r.name == "attention" for n in r.declined]
        said = "".join(f"; declined: {what}" for what in dict.fromkeys(declined))
        of = f"{len(fused)} of {len(given.model.layers)}"
        step = ENTRIES[entry]
        model = f"{stem} (`{name}`)" if entry == "decode" else ""
        for (heads, width, form), count in Counter(map(_form, fused)).items():
            times = "" if count == len(fused) else f"{count} x "
            yield f"| {model} | {step} | {of} | {heads} | {width} | {times}{form}{said} |"
            model = step = of = said = ""


def _graphs(given: Tiny) -> Mapping[str, Graph]:
    paged = paged_decoder_graphs(given.files, given.model, LAYOUT)
    both = given.graphs(LAYOUT.capacity, (1, 16)) | paged
    return {entry: both[entry] for entry in ENTRIES}


def _form(eqn: Eqn) -> tuple[str, str, str]:
    """(heads, widths, the rest) of an attention."""
    attrs = dict(eqn.attrs)
    names = attrs["operands"]
    assert isinstance(names, tuple)
    shapes = {str(n): v.type.shape for n, v in zip(names, eqn.ins, strict=True)}
    q, v = shapes["q"], shapes["v"]
    parts = [word for key, word in (("read", "paged"), ("len", "live")) if key in shapes]
    if "k_shared" in shapes:
        parts.append(f"shared {shapes['k_shared'][-1]}")
    if "mask" in shapes:
        parts.append("mask a head" if shapes["mask"][1] > 1 else "mask")
    if "softcap" in attrs:
        parts.append(f"softcap {attrs['softcap']:g}")
    if "sink" in shapes:
        parts.append("sink")
    return f"{q[1]}:{v[1]}", f"{q[3]}:{v[-1]}", ", ".join(parts) or "plain"


if __name__ == "__main__":
    PAGE.write_text(page())
