# SPDX-License-Identifier: Apache-2.0
"""From a request to a bundle: plans that fit the budget, weights, graphs, artifacts, golden vectors, manifest."""
