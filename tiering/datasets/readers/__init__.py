"""The formats of users, one module or room each; `tiering.datasets.open` lists them."""
