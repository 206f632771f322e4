"""Identity fuzz: thousands of random texts, each of which has only one right answer (docs/proof.md).

plan         case number -> model, drafter, settings, requests         a pure function
asks         the random prompts and sampling settings of a case
models       tiny random models of every architecture, and the zoo's, as directories
subjects     the engines of a case: the plain one, and the one under test
drive        a batch, streams, threads, asyncio, with neighbours that leave
keyed_draw   the documented draw, written again from its page
oracle       what `transformers` says of a text
journal      one JSON line a case, so that an interrupted run goes on; totals and quotas
"""
