"""List the devices that runs can use on this machine."""

from __future__ import annotations

from cfgraph.cli.options import Color, ColorChoice, Json


def main(json: Json = False, color: ColorChoice = Color.auto) -> None:
    """List the devices that runs can use on this machine."""
    from cfgraph.console.installation.devices import print_devices

    print_devices(json=json, color=color)
