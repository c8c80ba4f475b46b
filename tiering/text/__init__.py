"""Text that users write and read: values with a unit, arguments, descriptions, progress."""
