"""Pictures of bench records, by matplotlib (the extra `bench`). Each file draws one panel; `pictures` composes them."""
