# SPDX-License-Identifier: Apache-2.0
"""Readers for files of examples: text, CSV, JSON, mapped columns, known kinds of rows, and exports of chats."""
