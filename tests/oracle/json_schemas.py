"""Texts that grammar_bench draws for JSON schemas, checked by Python's jsonschema.

    python3 tests/oracle/json_schemas.py --bench build/release/bench/grammar_bench \
        --tokenizer src/atoll/text/testdata/gpt2.json [--texts 100]

Every text must be valid. --break checks each against the schema of its neighbour in the list, which must fail.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import jsonschema

NODE = {"type": "object", "required": ["value", "next"], "additionalProperties": False,
        "properties": {"value": {"type": "integer"},
                       "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}}
# Those of which the library knows what they are (its `time` is one of draft 3).
FORMATS = ["date", "date-time", "email", "ipv4", "uuid", "uri"]
SCHEMAS = [
    {"type": "object"},
    {"type": "object", "required": ["name", "age"], "additionalProperties": False,
     "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 20},
                    "age": {"type": "integer", "minimum": 0, "maximum": 150},
                    "mail": {"type": "string", "format": "email"},
                    "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3}}},
    {"type": "array", "items": {"enum": ["red", "green", "blue", 1, None, {"a": [1]}]}, "minItems": 2,
     "maxItems": 6},
    {"$defs": {"node": NODE}, "$ref": "#/$defs/node"},
    {"type": "object", "properties": {"a": {"type": "null"}, "ab": {"type": "null"}},
     "additionalProperties": {"type": "integer"}},
    {"type": "object", "patternProperties": {"^x-[a-z]+$": {"type": "boolean"}}, "additionalProperties": False},
    {"type": "string", "pattern": "^[A-Z][a-z\"\\\\]{2,5}( [0-9]+)?$"},
    {"type": "string", "pattern": "ab|^c"},
    {"type": "array", "minItems": 1, "maxItems": 4, "items": {"type": "number", "minimum": -2.5, "maximum": 17}},
    {"type": "array", "minItems": 1, "maxItems": 4,
     "items": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}},
    {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": -105, "exclusiveMaximum": 1017}},
    {"oneOf": [{"type": "object", "required": ["kind", "r"],
                "properties": {"kind": {"const": "circle"}, "r": {"type": "number", "minimum": 0}}},
               {"type": "object", "required": ["kind", "w"],
                "properties": {"kind": {"const": "box"}, "w": {"type": "integer"}}}]},
    {"allOf": [{"type": "object", "required": ["a"], "properties": {"a": {"type": "integer", "minimum": 3}}},
               {"properties": {"a": {"maximum": 9}, "b": {"type": "string"}}, "required": ["b"]}]},
    {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": {"type": "boolean"},
     "minItems": 2},
    {"type": "object", "required": ["d", "t", "dt", "u", "i", "w"],
     "properties": {"d": {"type": "string", "format": "date"}, "t": {"type": "string", "format": "time"},
                    "dt": {"type": "string", "format": "date-time"}, "u": {"type": "string", "format": "uuid"},
                    "i": {"type": "string", "format": "ipv4"}, "w": {"type": "string", "format": "uri"}}},
    {"type": ["object", "null"], "properties": {"a": {}, "b": {}}, "anyOf": [{"required": ["a"]},
                                                                             {"required": ["b"]}]},
    {"type": "string", "minLength": 3, "maxLength": 5},
    {"type": "object", "required": ["items"], "properties": {"items": {"type": "array", "minItems": 1, "items": {
        "type": "object", "required": ["id"], "properties": {"id": {"type": "string", "pattern": "^[a-f0-9]{8}$"},
                                                             "n": {"type": ["integer", "null"]}}}}}},
]


def draw(args, schema, folder):
    path = pathlib.Path(folder) / "schema.json"
    path.write_text(json.dumps(schema))
    done = subprocess.run([args.bench, "draw", "--tokenizer", args.tokenizer, "--schema", str(path),
                           "--texts", str(args.texts)], check=True, capture_output=True)
    return done.stdout.decode("utf-8").split("\n")[:-1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--texts", type=int, default=100)
    parser.add_argument("--break", action="store_true", dest="broken")
    args = parser.parse_args()
    wrong = checked = 0
    with tempfile.TemporaryDirectory() as folder:
        for number, schema in enumerate(SCHEMAS):
            against = SCHEMAS[number - 1] if args.broken else schema
            validator = jsonschema.Draft202012Validator(against, format_checker=jsonschema.FormatChecker(FORMATS))
            for text in draw(args, schema, folder):
                checked += 1
                errors = list(validator.iter_errors(json.loads(text)))
                if errors:
                    wrong += 1
                    if not args.broken:
                        print(json.dumps(schema), text, errors[0].message)
    print(f"{checked} texts of {len(SCHEMAS)} schemas, {wrong} wrong")
    return int(wrong > 0 or checked < len(SCHEMAS) * args.texts * 0.8)


if __name__ == "__main__":
    sys.exit(main())
