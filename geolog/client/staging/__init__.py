"""Staging: records that wait outside of any stream until they are copied into one."""
