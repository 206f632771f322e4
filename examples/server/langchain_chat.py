"""LangChain against a running server: `outdraft serve zoo:target`, then this file. pip install langchain-openai

OPENAI_BASE_URL names another server than http://127.0.0.1:8000/v1, OPENAI_API_KEY a key.
"""

import os

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI

model = ChatOpenAI(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "none"),
    model=os.environ.get("MODEL", "zoo:target"),
    max_tokens=40,
    seed=1,
    extra_body={"speculative": {"num_speculative_tokens": 6}},  # how its requests are drafted
)
prompt = ChatPromptTemplate.from_messages([("system", "You write stories."), ("user", "Tell me about {what}.")])
chain = prompt | model | StrOutputParser()

print("invoke:", chain.invoke({"what": "the sea"}))
print("stream:", "".join(chain.stream({"what": "the sea"})))
print("batch:", [len(text) for text in chain.batch([{"what": what} for what in ("a dog", "a cat", "a king")])])

schema = {
    "title": "trip",
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Bern", "Oslo"]}},
    "required": ["city"],
    "additionalProperties": False,
}
print("JSON:", model.with_structured_output(schema, method="json_schema").invoke("Where to?", temperature=0))
