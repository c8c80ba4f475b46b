"""`tiering evaluate`: the hit rate each score would have given, counted by the real sampler."""


def evaluate_command() -> None:
    """x"""
