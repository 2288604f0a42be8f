# SPDX-License-Identifier: BSD-3-Clause
"""Versions of the tables, for Alembic."""
