"""What plain Keras finds in one process: the truth that exact.py is held to."""

import sys

import numpy as np
from cases import TABLE, compiled, data, logs, network, optimizers, restart, weights

found = {}
for name, optimizer in optimizers().items():
    model = compiled(network(), optimizer)
    for samples, batch in TABLE:
        restart(model)
        x, y = data(samples)
        held = data(5)
        history = logs(model.fit(x, y, batch_size=batch, epochs=2, shuffle=False, verbose=0, validation_data=held))
        found[f"{name} {samples}/{batch} weights"] = weights(model)
        found[f"{name} {samples}/{batch} logs"] = np.array(list(history.values()))
        found[f"{name} {samples}/{batch} evaluate"] = np.array(model.evaluate(x, y, batch_size=batch, verbose=0))
        found[f"{name} {samples}/{batch} predict"] = model.predict(x, batch_size=batch, verbose=0)
np.savez(sys.argv[1], **found)
