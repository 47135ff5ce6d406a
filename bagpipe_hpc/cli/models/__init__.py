"""Commands for trained models and the folders that hold them."""
