"""`tiering bench`"""


def bench_command() -> None:
    """x"""
