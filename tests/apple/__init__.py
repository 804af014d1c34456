# SPDX-License-Identifier: Apache-2.0
"""Targets for the devices of Apple, as far as a machine without one shows them: make test-apple."""
