"""Processes that train together: shares of an epoch, and on one machine what they hold once for all.

Where to look: `rank` (which batches a rank gets), `peers` (processes of one machine, and memory that they share),
`machine` (ranks that make one loader there); the buffer that one of them fills for all: `server` (its owner's side),
`client` (a rank's side), `epoch` (what the owner knows of one), `channel` (messages between the two).
"""
