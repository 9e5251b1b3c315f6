"""`python -m maos`: the command line."""


def main() -> None:
    """Run the command line."""
    try:
        from maos.cli.program import program

        program(prog_name="maos")
    except KeyboardInterrupt:  # while everything was being loaded, or after it was done
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
