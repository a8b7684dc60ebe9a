"""Gather over all processes, which find each other by `jax.distributed.initialize()` without arguments."""

import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils

jax.distributed.initialize()
gathered = multihost_utils.process_allgather(jnp.array(jax.process_index()))
assert gathered.tolist() == list(range(jax.process_count())), gathered
print(f"world {jax.process_count()} rank {jax.process_index()} devices {jax.local_device_count()}", flush=True)
