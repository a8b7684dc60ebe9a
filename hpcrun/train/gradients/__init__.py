"""From this rank's gradients to everybody's mean gradient."""
