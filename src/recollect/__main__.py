"""`python -m recollect` is `recollect`."""

from recollect.surfaces.cli import main

if __name__ == "__main__":
    main()
