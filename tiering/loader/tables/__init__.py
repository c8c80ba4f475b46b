"""Feature rows by rank: tables over the tiers of a layout, the memory and the disks that they lie in."""
