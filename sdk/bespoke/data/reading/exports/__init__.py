# SPDX-License-Identifier: Apache-2.0
"""Readers for exports of chats, one module for each kind of app. Each yields conversations."""
