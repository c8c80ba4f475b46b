"""Processes that train together: their ranks, and on one machine what they share.

Where to look: `peers` (a group on one machine, and memory that it shares), `machine` (which batches a process gets, and
processes that make one loader on a machine). The buffer that one process fills for all: `server` (its owner),
`epoch` (an epoch there), `client` (each process's side), `channel` (messages between them).
"""
