"""The part of SARIF 2.1.0 that splitproof writes, as a JSON Schema of our own.

Read from the prose of the OASIS Standard (errata 01): section 3.x of each object stands beside
it.  The standard's own schema is not shipped here.  This one is stricter where it can be: no
property that we do not mean to write, and no empty text.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string", "minLength": 1}
COUNT: Schema = {"type": "integer", "minimum": 1}
INDEX: Schema = {"type": "integer", "minimum": 0}
LEVEL: Schema = {"enum": ["none", "note", "warning", "error"]}  # 3.27.10, 3.58.6
BAG: Schema = {"type": "object"}  # 3.8


def closed(required: str, **properties: Schema) -> Schema:
    return {
        "type": "object", "additionalProperties": False,
        "required": required.split(), "properties": properties,
    }  # fmt: skip


def several(item: Schema, *, least: int = 0, unique: bool = False) -> Schema:
    return {"type": "array", "items": item, "minItems": least, "uniqueItems": unique}


MESSAGE = closed("text", text=TEXT)  # 3.11
MULTIFORMAT = closed("text", text=TEXT, markdown=TEXT)  # 3.12
ARTIFACT_LOCATION = closed("uri", uri={**TEXT, "pattern": r"^[A-Za-z0-9._~!$&'()*+,;=:@/%-]+$"})
REGION = closed("startLine startColumn", startLine=COUNT, startColumn=COUNT)  # 3.30
LOCATION = closed(  # 3.28
    "physicalLocation",
    id=INDEX,
    physicalLocation=closed(  # 3.29
        "artifactLocation", artifactLocation=ARTIFACT_LOCATION, region=REGION
    ),
    logicalLocations=several(
        closed("fullyQualifiedName kind", fullyQualifiedName=TEXT, kind={"const": "member"})
    ),
    message=MESSAGE,
)
DESCRIPTOR = closed(  # 3.49
    "id shortDescription",
    id=TEXT,
    name=TEXT,
    shortDescription=MULTIFORMAT,
    fullDescription=MULTIFORMAT,
    help=MULTIFORMAT,
    defaultConfiguration=closed("level", level=LEVEL),
    properties=BAG,
)
DRIVER = closed(  # 3.19
    "name version semanticVersion rules notifications",
    name=TEXT,
    version=TEXT,
    semanticVersion={**TEXT, "pattern": r"^\d+\.\d+\.\d+"},
    rules=several(DESCRIPTOR, least=1, unique=True),
    notifications=several(DESCRIPTOR, unique=True),
)
NOTIFICATION = closed(  # 3.58
    "descriptor level message locations",
    descriptor=closed("id index", id=TEXT, index=INDEX),  # 3.52
    level=LEVEL,
    message=MESSAGE,
    locations=several(LOCATION, least=1, unique=True),
)
INVOCATION = closed(  # 3.20
    "executionSuccessful exitCode",
    executionSuccessful={"type": "boolean"},
    exitCode={"type": "integer"},
    toolExecutionNotifications=several(NOTIFICATION),
    toolConfigurationNotifications=several(NOTIFICATION),
)
MOMENT = closed(  # 3.38
    "location executionOrder importance",
    location=LOCATION,
    executionOrder=INDEX,
    importance={"enum": ["important", "essential", "unimportant"]},
)
THREAD_FLOW = closed(  # 3.37
    "id message immutableState locations",
    id=TEXT,
    message=MESSAGE,
    immutableState={"type": "object", "additionalProperties": MULTIFORMAT},
    locations=several(MOMENT, least=1),
)
RESULT = closed(  # 3.27
    "ruleId ruleIndex kind level message locations partialFingerprints",
    ruleId=TEXT,
    ruleIndex=INDEX,
    kind={"const": "fail"},
    level=LEVEL,
    message=MESSAGE,
    locations=several(LOCATION, least=1),
    relatedLocations=several(LOCATION, unique=True),
    partialFingerprints={"type": "object", "additionalProperties": TEXT},
    codeFlows=several(
        closed(  # 3.36
            "threadFlows", message=MESSAGE, threadFlows=several(THREAD_FLOW, least=1)
        )
    ),
    suppressions=several(
        closed(  # 3.35
            "kind status justification",
            kind={"enum": ["inSource", "external"]},
            status={"enum": ["accepted", "underReview", "rejected"]},
            justification=TEXT,
        ),
        unique=True,
    ),
    properties=BAG,
)
ARTIFACT = closed(  # 3.24
    "location mimeType",
    location=ARTIFACT_LOCATION,
    mimeType=TEXT,
    length=INDEX,
    encoding=TEXT,
    hashes=closed("sha-256", **{"sha-256": {"type": "string", "pattern": "^[0-9a-f]{64}$"}}),
)
RUN = closed(  # 3.14
    "tool columnKind invocations artifacts results",
    tool=closed("driver", driver=DRIVER),  # 3.18
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    invocations=several(INVOCATION, least=1),
    artifacts=several(ARTIFACT, unique=True),
    results=several(RESULT),
    properties=BAG,
)
LOG: Schema = {  # 3.13
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    **closed(
        "$schema version runs",
        **{"$schema": TEXT, "version": {"const": "2.1.0"}, "runs": several(RUN, least=1)},
    ),
}
