# SPDX-License-Identifier: Apache-2.0
"""Text to rows of tokens: files of examples, chat templates, tokenizers. Imports no torch, and jinja2 only for builds."""
