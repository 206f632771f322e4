"""The picture of a bench record, by matplotlib (the extra `bench`): `panels` are its parts, `picture` composes them."""
