"""Pictures of bench records, by matplotlib (the extra `bench`). `panels` draws one each; `pictures` composes them."""
