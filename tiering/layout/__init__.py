"""The layout stage: which rank lies in which tier, and the bytes of each tier on disk.

`LayoutOptions` is what was asked for, `plan_layout` decides by it, `write_layout` writes what was decided.
"""
