"""The graph stage: from edge lists of a dataset to compressed columns (CSC) per relation."""
