"""What is shown to users has to run."""
