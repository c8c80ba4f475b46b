"""Tasks of the scores: each module has the steps of a method, and the functions that its tasks run."""
