"""Train a model with a DistributedGradientTape, as Horovod's tensorflow2_mnist.py does."""

import horovod.tensorflow as hvd
import tensorflow as tf

hvd.init()
model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(1,))])
optimizer = tf.keras.optimizers.SGD(0.1 * hvd.size())
inputs = tf.fill((8, 1), float(hvd.rank()))


@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(inputs) - 2 * inputs) ** 2)
    tape = hvd.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))


for number in range(3):
    step()
    if number == 0:
        hvd.broadcast_variables(model.variables, root_rank=0)
weights = hvd.allgather(tf.reshape(model.trainable_variables[0], (1,)))
assert tf.reduce_all(weights == weights[0]), weights
print(f"world {hvd.size()} rank {hvd.rank()} local {hvd.local_rank()}", flush=True)
