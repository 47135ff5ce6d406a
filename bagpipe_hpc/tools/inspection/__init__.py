"""What a folder of this program holds (`bagpipe inspect`), and how two checkpoints differ (`bagpipe compare`)."""
