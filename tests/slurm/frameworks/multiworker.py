"""Train a variable with MultiWorkerMirroredStrategy in a custom loop, as in TensorFlow's tutorial."""

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
task = strategy.cluster_resolver.task_id
with strategy.scope():
    weight = tf.Variable(0.0, aggregation=tf.VariableAggregation.MEAN)


@tf.function
def step():
    def replica():
        context = tf.distribute.get_replica_context()
        gradient = context.all_reduce(tf.distribute.ReduceOp.MEAN, weight - tf.cast(task, tf.float32))
        weight.assign_sub(0.5 * gradient)

    strategy.run(replica)


for _ in range(20):
    step()
print(f"world {strategy.num_replicas_in_sync} rank {task} weight {weight.numpy():.3f}", flush=True)
