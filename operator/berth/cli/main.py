"""``berth``, also ``kubectl berth``: the commands, each loaded only when it is called."""

from __future__ import annotations

import importlib
import sys
from typing import Final

import click

from berth import __version__
from berth.values import BerthError

COMMANDS: Final = {
    "dev": ("berth.cli.dev", "dev", "A real control plane on this machine, with simulated nodes."),
    "demo": ("berth.cli.demo", "demo", "Show gangs placed, failing, recovering and finishing."),
}


class Lazy(click.Group):
    """A group whose commands are imported on use: ``--help`` of one must not pay for all."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, None when there is none."""
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table itself, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in COMMANDS.items()])


@click.group(cls=Lazy)
@click.version_option(__version__)
def cli() -> None:
    """Berth gives every AI workload the right berth."""


def main() -> None:
    """Entry point: problems that a user can mend are one line on stderr."""
    try:
        cli()
    except BerthError as problem:
        click.echo(f"berth: {problem}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
