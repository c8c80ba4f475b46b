#!/usr/bin/env bash
# How fast memories and links are, and how near to that a gather comes, by row size, multiprocessors, threads and order.
. "$(dirname "$0")/common.sh"
need_build

threads=$(nproc)
benchmark gpu-ceilings 60 --threads "$threads"
benchmark gpu-rows 150 --threads "$threads"
benchmark gpu-sweep 260 --threads "$threads" --sweep-out "$out/gpu-sweep-cases.json" # kept case by case
finish
