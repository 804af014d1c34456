# SPDX-License-Identifier: Apache-2.0
"""An optimizer and a target for bespoke, made from its public documentation alone."""
