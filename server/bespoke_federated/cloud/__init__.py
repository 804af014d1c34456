# SPDX-License-Identifier: Apache-2.0
"""A cloud that leads edges: it opens rounds at all of them, combines what they collected, and keeps its own adapter."""
