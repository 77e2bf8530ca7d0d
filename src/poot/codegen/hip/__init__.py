"""HIP C++ text from kernel IR: one kernel a text, which needs no device library."""
