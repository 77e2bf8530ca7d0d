"""PTX from kernel IR, as text: one module a kernel, for sm_80 and up."""
