"""Schedule "latent": one key head whose values are the first channels of its keys."""
