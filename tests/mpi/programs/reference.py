"""What plain Keras finds in one process: the truth that exact.py is held to."""

import sys

import numpy as np
from cases import CASES, compiled, data, logs, network, optimizers, restart, weights

found = {}
models = {name: compiled(network(), optimizer) for name, optimizer in optimizers().items()}
for name, samples, batch in CASES:
    model, case, (x, y) = models[name], f"{name} {samples}/{batch}", data(samples)
    restart(model)
    history = model.fit(x, y, batch_size=batch, epochs=2, shuffle=False, verbose=0, validation_data=data(5))
    found[f"{case} weights"] = weights(model)
    found[f"{case} logs"] = np.array(list(logs(history).values()))
    if samples % 2:
        found[f"{case} evaluate"] = np.array(model.evaluate(x, y, batch_size=batch, verbose=0))
        found[f"{case} predict"] = model.predict(x, batch_size=batch, verbose=0)
np.savez(sys.argv[1], **found)
