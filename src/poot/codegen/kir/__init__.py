"""The kernel IR: what one workgroup does, as data. Emitters spell it; `sim` runs it in numpy."""
