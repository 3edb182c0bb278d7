"""`python -m evorun`: the same as the `evorun` command."""

from evorun.cli import main

if __name__ == "__main__":
    main()
