"""Processes that train together: their ranks, and on one machine what they share.

`peers`: a group on one machine and its memory; `machine`: which batches a process gets, and messages; the buffer that
one process fills for all: `server` (its owner), `client` (each process).
"""
