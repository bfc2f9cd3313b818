"""Test tools that ship: contract kits, the virtual clock, named crash points."""
