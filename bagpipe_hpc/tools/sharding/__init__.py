"""Learning which server should have which table: AutoShard and DreamShard, offline."""
