"""GPU benchmarks: gathers against copies and torch, sampling, epochs. They import torch; `page` writes docs/gpu.md."""
