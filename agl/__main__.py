"""``python -m agl`` is ``agl``; Ctrl-C is heeded before the first import that takes time."""

from agl.cli.interrupts import leave_on_interrupt


def main() -> None:
    """Run the command that the process's arguments name; this ends the process."""
    leave_on_interrupt()
    from agl.cli.app import main as run

    run()


if __name__ == "__main__":
    main()
