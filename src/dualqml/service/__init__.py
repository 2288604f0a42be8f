# SPDX-License-Identifier: BSD-3-Clause
"""The service: an HTTP API and a web page over galleries in a database.

``dualqml serve`` starts it. It needs the packages of ``dualqml[service]``.
"""
