# SPDX-License-Identifier: Apache-2.0
"""From words to rows of tokens: files, chat templates, tokenizers. Imports no torch, and jinja2 only to build."""
