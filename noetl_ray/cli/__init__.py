"""The command line: what a person types. Top of the import order."""
