# SPDX-License-Identifier: Apache-2.0
"""An edge that is led: a cloud opens and ends its rounds, and this server collects what its own devices measured."""
