"""Jobs after submission: run directories, states, logs."""
