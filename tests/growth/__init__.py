"""Work and memory grow with what is asked, and with nothing else."""
