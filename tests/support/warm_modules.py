"""What processes of `warm_processes` have loaded when they begin."""

import gc

import peer_programs  # noqa: F401
import rank_programs  # noqa: F401
from crash_injection import load_what_commands_load

import tiering.scores  # noqa: F401
from tiering.cli.main import main

load_what_commands_load(main)
gc.collect()
gc.freeze()  # no process looks at it again, which would copy it
