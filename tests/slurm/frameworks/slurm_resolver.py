"""Sum over the workers of a MultiWorkerMirroredStrategy, which find each other by TensorFlow's SlurmClusterResolver."""

import tensorflow as tf

resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(
    port_base=21888, gpus_per_node=2, gpus_per_task=1, auto_set_gpu=False
)
strategy = tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)
total = strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.ones(())))
assert int(total) == strategy.num_replicas_in_sync
print(f"world {strategy.num_replicas_in_sync} rank {resolver.task_id}", flush=True)
