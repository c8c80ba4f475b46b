"""Text that users write and read: options, values with a unit, arguments, descriptions, progress."""
