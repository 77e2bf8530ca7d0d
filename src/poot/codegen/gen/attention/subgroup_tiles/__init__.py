"""Schedule "subgroup_tiles": many query rows on the matrix units of subgroups, any GPU's."""
