"""Topics as files: `evenkeel topic export` and `topic import` (docs/backups.md, ADR 63)."""
