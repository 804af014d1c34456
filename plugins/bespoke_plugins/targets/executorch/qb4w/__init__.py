# SPDX-License-Identifier: Apache-2.0
"""Forward graphs whose products with int4 weights XNNPACK computes, with activations rounded to int8 (its `qb4w`)."""
