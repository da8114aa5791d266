# Power cuts, kills, lying peers.
