"""Commands that say what a run would do, without starting one."""
