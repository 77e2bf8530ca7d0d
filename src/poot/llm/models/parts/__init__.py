"""Parts of layers that model families share."""
