"""Schedule "tiled": many query rows on warpgroup products, copies by a role of their own."""
