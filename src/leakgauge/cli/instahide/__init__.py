"""``leakgauge instahide``: encrypt with it, estimate it, and set challenges for those who attack it."""

from __future__ import annotations

import typer

from leakgauge.cli.instahide import attack, challenge, encrypt, estimate, public

group = typer.Typer(
    help="Encrypt training images with Mixup or InstaHide, and measure what that hides.", no_args_is_help=True
)
group.command()(encrypt.encrypt)
group.command()(public.public)
group.command()(estimate.estimate)
group.command()(challenge.challenge)
group.command()(attack.attack)
