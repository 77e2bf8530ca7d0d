"""SPIR-V 1.3 from kernel IR, as words: one module that Vulkan drivers and naga both take."""
