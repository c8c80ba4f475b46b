"""Datasets of users, in the formats they come in, described for the graph stage; `generated` makes some from a seed."""
