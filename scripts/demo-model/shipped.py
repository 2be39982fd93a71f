"""The sheets of the repository's own templates, word for word, so that training and evaluation use what users will send."""
import functools
import json
import os
import re

DIR = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "templates")
# family -> template file, {question id: (attribute of the world, keys behind each answer)}
FILES = {
    "support": ("support_triage", {"urgent": ("urgent", [["yes"]]), "team": ("team", [["billing"], ["support"], ["engineering"]]), "sentiment": ("tone", [["calm"], ["frustrated"], ["furious"]])}),
    "code": ("code_review", {"approved": ("approved", [["yes"]]), "category": ("category", [["bugfix"], ["feature"], ["refactor"], ["security"]]),
                             "risk_level": ("risk", [["low"], ["medium"], ["high"], ["critical"]])}),
    "security": ("security_incident", {"data_compromise": ("data", [["yes"]]), "action": ("action", [["monitor"], ["revoke_key"], ["isolate_host"], ["page_oncall"]]),
                                       "severity": ("severity", [["p3"], ["p2"], ["p1"], ["p0"]])}),
    "injection": ("calibration/prompt_injection", {"injection": ("injection", [["yes"]])}),
    "router": ("agent_router", {"tool": ("tool", [["search"], ["read_code"], ["edit_code"], ["run_tests"], ["ask_user"]])}),
    "contract": ("contract_audit", {"auto_renews": ("renews", [["yes"]]), "liability_cap": ("cap", [["uncapped"], ["capped_12m"], ["capped_super"]]),
                                    "legal_risk": ("legal", [["minimal"], ["moderate"], ["elevated"], ["severe_blocker"]])}),
}


@functools.cache
def sheet(family):
    """(schema, specs, state key) of the family's template, or None while there is no such template."""
    if family not in FILES:
        return None
    name, attrs = FILES[family]
    path = os.path.join(DIR, name + ".json.tmpl")
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf8") as f:
        text = re.sub(r"\{#.*?#\}", "", f.read(), flags=re.S)
    body = json.loads(re.sub(r"\{\{.*?\}\}", "null", text, flags=re.S))
    schema = {k: v for k, v in body["schema"].items() if k in ("instructions", "questions")}
    if [q["id"] for q in schema["questions"]] != list(attrs):
        return None
    specs = [{"attr": a, "type": q["type"], "groups": g} for q, (a, g) in zip(schema["questions"], attrs.values())]
    return schema, specs, next(iter(body["state"]))


def handwritten(path):
    """Items of handwritten.jsonl in the form of eval.jsonl: {id, template (a family above), state (object, or text for the
    template's own key), expected (null where the text does not decide)} gets schema, family and the state as templates send it."""
    out = []
    with open(path, encoding="utf8") as f:
        for line in f:
            x = json.loads(line)
            x["family"], (x["schema"], _, key) = x["template"], sheet(x["template"])
            state = x["state"] if isinstance(x["state"], dict) else {key: x["state"]}
            x["state"] = json.dumps(state, ensure_ascii=False, separators=(",", ":"))
            x["expected"] = {k: {True: "yes", False: "no"}.get(v, v) for k, v in x["expected"].items()}
            out.append(x)
    return out
