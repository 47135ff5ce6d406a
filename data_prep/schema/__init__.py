"""Reads any CSV, TSV or Parquet file by a description of its columns in TOML: a schema."""
