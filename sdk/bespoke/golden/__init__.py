# SPDX-License-Identifier: Apache-2.0
"""Golden vectors: computed at build by other code than the graphs, verified on the device."""
