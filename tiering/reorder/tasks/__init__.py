"""Tasks of the reorder stage: the order of nodes, and the lists of relations under new ids."""
