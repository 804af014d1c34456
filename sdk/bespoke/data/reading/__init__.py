# SPDX-License-Identifier: Apache-2.0
"""What files of examples are made of: text, CSV, JSON, columns, known shapes of rows, and exports of chats."""
