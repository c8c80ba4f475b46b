"""Mini-batches: what they hold, and the stages that make them ahead of training."""
