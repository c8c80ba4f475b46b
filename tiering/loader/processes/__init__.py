"""Processes that train together: their ranks, and on one machine what they share.

Where to look: `rank` (which batches a process gets), `peers` (a group on one machine, and memory that it shares),
`machine` (processes that make one loader there). The buffer that one process fills for all: `server` (its owner),
`epoch` (an epoch there), `client` (each process's side), `channel` (messages between them).
"""
