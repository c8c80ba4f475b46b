"""The layout stage: which rank lies in which tier, and the bytes of each tier on disk.

`LayoutOptions` is what was requested, `plan_layout` decides by it, `write_layout` writes what was decided.
"""
