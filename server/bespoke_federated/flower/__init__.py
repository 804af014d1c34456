# SPDX-License-Identifier: Apache-2.0
"""Flower carries what a cloud and its edges tell each other: pip install 'bespoke-federated[flower]'.

The cloud is a ServerApp. Each edge has a SuperNode on its own machine. Its ClientApp hands the cloud's order to the edge and brings
back what it answers. Devices know nothing of Flower. No other part of this package imports it.
"""
