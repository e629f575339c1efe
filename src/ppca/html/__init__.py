"""Shared parts of local web pages and the report: style, security headers, number formats."""
