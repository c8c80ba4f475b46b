"""Format ``graphbolt``: directories of DGL's `OnDiskDataset`, before it has preprocessed them and after."""
