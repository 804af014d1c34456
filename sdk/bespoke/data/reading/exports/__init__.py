# SPDX-License-Identifier: Apache-2.0
"""Exports of chats, by the app that wrote them, as conversations."""
