"""Why a job waits, failed, or is as it is: in plain words, with the evidence and what to do."""
