"""Programs as files: a zip of a JSON manifest and kernels, weights apart in safetensors."""
