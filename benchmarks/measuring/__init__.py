"""What the benchmarks share: where and on which code they ran, and the rows that they run on."""
