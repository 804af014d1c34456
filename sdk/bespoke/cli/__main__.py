# SPDX-License-Identifier: Apache-2.0
"""`python -m bespoke.cli` is `bespoke`."""

from bespoke.cli import main

main()
