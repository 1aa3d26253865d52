"""The tests. Each module names what it is about; none of them sleeps to wait for something."""
