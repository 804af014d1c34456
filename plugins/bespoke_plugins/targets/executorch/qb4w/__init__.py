# SPDX-License-Identifier: Apache-2.0
"""Forward graphs in which XNNPACK computes the products with int4 weights and rounds activations to int8 (its `qb4w`)."""
