"""What processes of `warm_processes` have loaded when they begin."""

import gc

import peer_programs  # noqa: F401
import pytest  # noqa: F401
import rank_programs  # noqa: F401
import simulated_gpu  # noqa: F401
import tight_memory  # noqa: F401
import torch.distributed  # noqa: F401
from crash_injection import load_what_commands_load

import tiering.loader
import tiering.loader.gpu.batches
import tiering.scores  # noqa: F401
from tiering.cli.commands import commands
from tiering.cli.main import main

load_what_commands_load(main)
commands()
gc.collect()
gc.freeze()  # no process looks at it again, which would copy it
