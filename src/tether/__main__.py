"""`python -m tether` is the command `tether`."""

from tether.cli.main import entry

if __name__ == "__main__":
    entry()
