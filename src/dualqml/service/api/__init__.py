# SPDX-License-Identifier: BSD-3-Clause
"""The routes of the HTTP API."""
