"""What runs were and what came of them: side by side, and as a page."""
