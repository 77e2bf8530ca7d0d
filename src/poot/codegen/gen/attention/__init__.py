"""The attention generator: score, mask, key addressing and softmax step once; a schedule a file."""
