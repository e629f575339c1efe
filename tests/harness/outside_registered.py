"""Registers the example of an analysis from outside the package, in the processes of developer servers that import this."""

from harness.outside import JointMeans
from ppca.jobs.registry import register

register(JointMeans)
