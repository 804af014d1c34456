# SPDX-License-Identifier: Apache-2.0
"""A model as a GGUF file: its configuration, and its weights under transformers' names."""
