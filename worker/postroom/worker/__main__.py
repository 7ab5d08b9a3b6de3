"""`python -m postroom.worker` is the `postroom` command."""

from postroom.mailbox.entry import main

if __name__ == "__main__":
    main()
