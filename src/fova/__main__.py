"""`python -m fova` is the command `fova`, with the Python that one names."""

from fova.commands.main import main

if __name__ == "__main__":
    main()
