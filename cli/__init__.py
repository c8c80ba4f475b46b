"""The command line, installed as ``tiering.cli``. One module per command or verb; no algorithm lives here."""
