"""The HTTP server: the engine behind the routes that clients of OpenAI's API, and of other servers, know.

It stands on `LLM.open`: one engine thread, a queue for each request. Nothing here is imported before `outdraft serve`.
"""
