"""Random schemas of the kind that programs ask for, and a check of its own of what they mean.

Data in: dice; data out: a schema, and whether a value fits it. The check knows the keywords that are drawn, and nothing
of any library.
"""

import json
import re

NAMES = ("name", "age", "is_ok", "tags", "née", "a b", 'quo"te', "x")
WORDS = ("red", "dark green", "blå", "1", "true", 'say "so"')
PATTERNS = (r"[a-z]{2,5}", r"\d{3}-\d{2}", r"(ab|cd)+e?", r"[A-Z][a-z]{0,6}")


def random_schema(rng, depth=0):
    """Texts, numbers, choices, lists and objects, at most three levels deep, each with limits, so that texts end."""
    kinds = ["text", "pattern", "integer", "boolean", "enum", "null", "const"]
    kinds += ["array", "object", "object", "anyOf"] if depth < 2 else []
    match "object" if depth == 0 and rng.random() < 0.7 else rng.choice(kinds):
        case "text":
            return {"type": "string", "maxLength": rng.randint(0, 12)}
        case "pattern":
            return {"type": "string", "pattern": f"^{rng.choice(PATTERNS)}$", "maxLength": 12}
        case "integer":
            low = rng.randint(-50, 50)
            return {"type": "integer", "minimum": low, "maximum": low + rng.randint(0, 200)}
        case "boolean":
            return {"type": "boolean"}
        case "null":
            return {"type": "null"}
        case "const":
            return {"const": rng.choice((*WORDS, 7, None, True))}
        case "enum":
            return {"enum": rng.sample([*WORDS, 3, -4, None, False], rng.randint(1, 4))}
        case "array":
            least = rng.randint(0, 2)
            items = random_schema(rng, depth + 1)
            return {"type": "array", "items": items, "minItems": least, "maxItems": least + rng.randint(0, 2)}
        case "anyOf":
            return {"anyOf": [random_schema(rng, depth + 1) for _ in range(rng.randint(1, 3))]}
        case _:
            names = rng.sample(NAMES, rng.randint(0, 4))
            return {
                "type": "object",
                "properties": {name: random_schema(rng, depth + 1) for name in names},
                "required": [name for name in names if rng.random() < 0.6],
                "additionalProperties": False,
            }


def fits(value, schema):
    """Whether the value is one that the schema describes."""
    if "anyOf" in schema:
        return any(fits(value, one) for one in schema["anyOf"])
    if "const" in schema or "enum" in schema:
        allowed = [schema["const"]] if "const" in schema else schema["enum"]
        return any(type(value) is type(one) and value == one for one in allowed)
    match schema["type"]:
        case "string":
            short = isinstance(value, str) and len(value) <= schema["maxLength"]
            return short and ("pattern" not in schema or re.fullmatch(schema["pattern"], value, re.ASCII) is not None)
        case "integer":
            return type(value) is int and schema["minimum"] <= value <= schema["maximum"]
        case "boolean":
            return type(value) is bool
        case "null":
            return value is None
        case "array":
            counted = isinstance(value, list) and schema["minItems"] <= len(value) <= schema["maxItems"]
            return counted and all(fits(one, schema["items"]) for one in value)
    named = isinstance(value, dict) and set(schema["required"]) <= set(value) <= set(schema["properties"])
    return named and all(fits(one, schema["properties"][name]) for name, one in value.items())


def read(text):
    """The value that a text stands for; a name that comes twice makes it none."""

    def once(pairs):
        if len({name for name, _ in pairs}) != len(pairs):
            raise ValueError("a name comes twice")
        return dict(pairs)

    return json.loads(text, object_pairs_hook=once)
