"""K and V of committed positions, written into an EAGLE-3 draft's KV pool without running the draft."""
