"""Stages as tasks that any number of processes or machines share, with the same bytes as one process makes."""
