"""`python -m maos`: the command line."""


def main() -> None:
    """Run the command line."""
    raise SystemExit("the command line is not here yet")


if __name__ == "__main__":
    main()
