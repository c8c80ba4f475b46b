"""The reorder stage: rank nodes by score (rank 0 is the hottest), and relabel a graph so that id = rank."""
