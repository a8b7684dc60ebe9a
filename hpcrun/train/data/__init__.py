"""Data sharding: each rank's shard of every batch."""
