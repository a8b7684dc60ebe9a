"""What ended jobs left behind: finding it on every node they had, ending and removing it."""
