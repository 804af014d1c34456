# SPDX-License-Identifier: Apache-2.0
"""`python -m bespoke.cli` runs the command `bespoke`."""

from bespoke.cli import main

main()
