"""The kernel IR: what one workgroup does, as data. Every emitter spells it; `sim` runs it in numpy."""
