"""The models that come with the package, each after its publication, and the parts that they share."""
