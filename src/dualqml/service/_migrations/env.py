# SPDX-License-Identifier: BSD-3-Clause
"""How Alembic reaches the database: by the connection that it is given."""

from alembic import context

from dualqml.service.tables import metadata

context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata
)
# The connection is in a transaction already.
context.run_migrations()
