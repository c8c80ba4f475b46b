"""A model of disks, and the lookahead that reads the ssd tier fastest by it. Imports no torch."""
