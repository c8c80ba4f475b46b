"""How what a task leaves for others comes to them: through the store, or through Ray's memory."""

from tiering.cluster.exchanges.exchange import Exchange, Left, PartWriter, TaskExchange

__all__ = ["Exchange", "Left", "PartWriter", "TaskExchange"]
