"""What processes of `warm_processes` have loaded when they begin."""

import gc

import numpy  # noqa: F401
import peer_programs  # noqa: F401
import pytest  # noqa: F401
import rank_programs  # noqa: F401
import simulated_gpu  # noqa: F401
import tight_memory  # noqa: F401
import torch.distributed  # noqa: F401

import tiering.loader
import tiering.loader.gpu.batches  # noqa: F401

gc.collect()
gc.freeze()  # no process looks at it again, which would copy it
