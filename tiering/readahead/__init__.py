"""How the ssd tier would be read: a model of disks, and how far it pays to look ahead. Knows no torch."""
