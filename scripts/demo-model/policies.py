"""Question banks of the six policies: wordings, ids, option names and descriptions, and the keys of the world behind each
answer. sheets.py draws sheets from them."""

def boolean(attr, keys, ids, instr, crit=(), weight=1.0):
    return dict(type="boolean", attr=attr, keys=keys, ids=ids, instr=instr, crit=crit, weight=weight)


def choice(attr, ids, instr, options, canon=None, extra=(), weight=1.0):
    return dict(type="choice", attr=attr, ids=ids, instr=instr, options=options, canon=canon or list(options), extra=extra, weight=weight)


def score(attr, ids, instr, levels, weight=1.0):
    return dict(type="score", attr=attr, ids=ids, instr=instr, levels=levels, weight=weight)


NEUTRAL_IDS = ["q1", "q2", "q3", "q4", "item_a", "item_b", "field_1", "field_2", "check", "answer", "decision", "label", "result", "verdict", "first", "second"]
GENERAL = ["Read the text and decide.", "Judge only by the text.", "Answer from the text alone.", "Be strict.", "Use common sense.", "You are a careful reviewer.",
           "The text comes from a web form.", "Think of the reader who acts on the answer.", "If in doubt choose the milder label."]

SUPPORT = dict(context=["You triage support tickets.", "Tickets of a software company.", "Sort incoming customer mail.", "Customer messages arrive here; route them.",
                        "Triage for the help desk."], keys=["ticket", "message", "text", "mail", "body", "request", "content"], qs=[
    boolean("urgent", ["yes"], ["urgent", "is_urgent", "escalate", "immediate", "priority_now", "needs_action_now", "page_someone"],
            ["Immediate escalation required?", "Is this urgent?", "Does this ticket need action right away?", "Must somebody react within the hour?", "Is immediate action needed?",
             "Escalate at once?", "Time critical?", "Is work or money at stake right now?", "Does it require an instant reaction?"],
            [("outage, money or work at stake", "anything that can wait"), ("must be handled at once", "can wait"), ("time critical", "no hurry"), ("service down or a deadline in minutes", "ordinary request")], 2.2),
    boolean("urgent", ["no"], ["can_wait", "deferrable", "low_priority", "not_urgent"], ["Can this wait until tomorrow?", "Is it fine to answer later?", "Can the reply wait?", "Is there no hurry?"],
            [("no hurry", "must be handled at once"), ("can wait", "urgent")], .5),
    choice("team", ["team", "owner", "department", "route", "queue", "assign_to", "handled_by"],
           ["Owning team", "Which team should handle it?", "Who owns this ticket?", "Route the ticket to a team", "Which department is responsible?", "Where does it belong?", "Best team for this request"],
           {"billing": (["billing", "billing", "payments", "finance", "invoicing", "accounts_receivable"], ["money", "invoices, refunds and payments", "charges, bills and prices", "anything about paying", "payment questions"]),
            "support": (["support", "support", "help_desk", "customer_care", "customer_service"], ["how-to questions and account access", "help with using the product", "login help and usage questions", "questions and account help", "general help"]),
            "engineering": (["engineering", "engineering", "developers", "technical", "dev_team"], ["bugs, crashes and outages", "technical faults", "something is broken in the software", "errors and downtime", "defects"])},
           extra=[("sales", ["sales"], ["new orders and offers"]), ("legal", ["legal"], ["contracts and lawsuits"]), ("hr", ["hr", "people"], ["staff and hiring"])], weight=2.2),
    boolean("team", ["billing"], ["is_billing", "about_money", "payment_issue"], ["Is it about a payment or an invoice?", "Is this a billing matter?", "Does it concern money?"], [("payments, invoices, refunds", "anything else")], .4),
    boolean("team", ["engineering"], ["is_bug", "technical_fault", "defect"], ["Is a technical fault reported?", "Does the customer report a bug or an outage?", "Is something broken in the software?"], [("bug, crash or outage", "anything else")], .4),
    boolean("team", ["support"], ["how_to", "is_help_request", "usage_question"], ["Is it a question about using the product or getting access?", "Does the customer need help with usage or login?"], [("usage or login help", "anything else")], .3),
    score("tone", ["sentiment", "tone", "mood", "distress", "anger", "feeling", "customer_mood"],
          ["Customer distress", "How does the customer sound?", "Customer sentiment", "Tone of the message", "How upset is the writer?", "Mood of the customer", "Level of anger"],
          [[("calm", ["calm"]), ("frustrated", ["frustrated"]), ("furious", ["furious"])]] * 4 +
          [[("calm", ["calm"]), ("annoyed", ["frustrated"]), ("furious", ["furious"])], [("relaxed", ["calm"]), ("irritated", ["frustrated"]), ("enraged", ["furious"])],
           [("polite or neutral", ["calm"]), ("unhappy but civil", ["frustrated"]), ("insulting or shouting", ["furious"])], [("friendly", ["calm"]), ("upset", ["frustrated"]), ("outraged", ["furious"])],
           [("calm", ["calm"]), ("angry", ["frustrated", "furious"])], [("not angry", ["calm"]), ("angry", ["frustrated"]), ("very angry", ["furious"])]], 2.0),
    choice("tone", ["tone", "emotion", "voice", "temper"], ["Tone of the customer", "Emotion in the message", "How does the writer feel?"],
           {"calm": (["calm", "polite", "neutral", "relaxed"], ["friendly or neutral", "no anger"]), "frustrated": (["frustrated", "annoyed", "irritated"], ["annoyed but civil", "unhappy"]),
            "furious": (["furious", "enraged", "hostile"], ["shouting or insults", "very angry"])}, weight=.7),
    boolean("tone", ["frustrated", "furious"], ["upset", "is_unhappy", "annoyed"], ["Is the customer upset?", "Is the writer unhappy or angry?", "Does the customer complain?"], [("annoyed or angry", "calm")], .4),
    boolean("tone", ["furious"], ["abusive", "hostile", "furious"], ["Is the customer furious or insulting?", "Does the writer insult or shout?"], [("insults, threats or shouting", "anything milder")], .4),
    boolean("tone", ["calm"], ["polite", "is_calm", "friendly"], ["Is the tone calm?", "Is the customer polite?", "Does the writer stay friendly or neutral?"], [("calm or friendly", "annoyed or angry")], .4),
    boolean("churn", ["yes"], ["churn_risk", "leaving", "may_cancel"], ["Does the customer threaten to leave?", "Is there a risk of losing the customer?", "Does the customer speak of cancelling or switching?"], [("wants to leave or cancel", "no sign of leaving")], .5),
    boolean("call", ["yes"], ["wants_call", "phone", "call_back"], ["Does the customer want a phone call?", "Is a call requested?"], [("asks for a call", "no call requested")], .5),
    boolean("solved", ["yes"], ["solved", "already_fixed", "closed"], ["Is the problem already solved?", "Can the ticket be closed?"], [("the customer says it is solved", "still open")], .3)])

CODE = dict(context=["You review code changes.", "Pull request review.", "Decide about a diff.", "Review for the core team.", "Judge a change before it is merged."],
            keys=["diff", "change", "patch", "pull_request", "commit"], qs=[
    boolean("approved", ["yes"], ["approved", "approve", "mergeable", "accept", "looks_good", "ready"], ["Can it be merged as it is?", "Approve this change?", "Is the change safe to merge?", "Should the pull request be accepted?", "Is it ready to merge?"],
            [("sound and complete", "needs changes"), ("safe to merge", "broken, unsafe or unfinished")], 2.0),
    boolean("approved", ["no"], ["block", "needs_work", "reject", "request_changes"], ["Must the change be blocked?", "Does it need more work?", "Should changes be requested?"], [("broken, unsafe or unfinished", "fine as it is")], .6),
    choice("category", ["category", "change_type", "kind", "type", "class"], ["Kind of change", "What does the change do?", "Type of the change", "Classify the pull request", "Category of the diff"],
           {"bugfix": (["bugfix", "bugfix", "fix", "bug_fix"], ["repairs wrong behaviour", "corrects an error", "fixes a defect"]), "feature": (["feature", "feature", "new_feature", "enhancement"], ["adds new behaviour", "something new for users"]),
            "refactor": (["refactor", "refactor", "cleanup", "restructure"], ["same behaviour, better structure", "code clean-up"]), "security": (["security", "security", "hardening"], ["protects against attacks", "closes a security hole", "permissions, secrets or escaping"]),
            "docs": (["docs", "documentation"], ["text and comments only", "documentation"]), "test": (["tests", "test"], ["test code only", "adds or repairs tests"])},
           canon=["bugfix", "feature", "refactor", "security"], weight=2.0),
    score("risk", ["risk_level", "risk", "danger", "merge_risk"], ["How risky is it to merge?", "Risk of the change", "Risk level", "How dangerous is this diff?", "Danger for production"],
          [[("low", ["low"]), ("medium", ["medium"]), ("high", ["high"]), ("critical", ["critical"])]] * 4 + [[("harmless", ["low"]), ("moderate", ["medium"]), ("serious", ["high"]), ("severe", ["critical"])],
           [("low", ["low"]), ("medium", ["medium"]), ("high", ["high", "critical"])], [("safe", ["low", "medium"]), ("dangerous", ["high", "critical"])], [("minor", ["low"]), ("noticeable", ["medium"]), ("major", ["high"]), ("catastrophic", ["critical"])]], 2.0),
    boolean("hole", ["yes"], ["vulnerable", "security_hole", "unsafe", "introduces_vulnerability"], ["Does the change introduce a security hole?", "Is the new code open to attack?", "Does it create a vulnerability?"], [("injection, leaked secret, missing check", "no new weakness")], .8),
    boolean("category", ["docs"], ["docs_only", "text_only"], ["Is it documentation only?", "Does it change nothing but text?"], [], .2),
    boolean("category", ["feature"], ["adds_feature", "new_behaviour"], ["Does it add a feature?", "Is new behaviour added?"], [], .3),
    boolean("category", ["bugfix"], ["is_fix", "repairs"], ["Does it repair a bug?", "Is it a fix?"], [], .3)])

SECURITY = dict(context=["You watch security alerts.", "Alerts of a security desk.", "Handle the incident.", "First responder of the operations centre."], keys=["alert", "incident", "event", "finding", "log"], qs=[
    boolean("data", ["yes"], ["data_compromise", "breach", "data_leaked", "data_stolen", "exfiltration"], ["Was data exposed or stolen?", "Is data compromised?", "Did an outsider get data?", "Has data left our control?", "Is there a data breach?"],
            [("data was read, copied or destroyed", "no data affected"), ("breach", "no breach")], 2.0),
    choice("action", ["action", "response", "next_step", "reaction", "do_now"], ["First action to take", "What should be done first?", "Best response", "Choose the next step", "Reaction to the alert"],
           {"monitor": (["monitor", "monitor", "observe", "no_action"], ["keep watching, nothing to do now", "harmless or blocked"]), "revoke_key": (["revoke_key", "revoke_key", "rotate_credentials", "disable_token"], ["withdraw leaked credentials", "a key, token or password is in wrong hands"]),
            "isolate_host": (["isolate_host", "isolate_host", "quarantine_machine", "disconnect_host"], ["cut an infected machine off the network", "malware on a machine"]),
            "page_oncall": (["page_oncall", "page_oncall", "call_incident_team", "wake_on_call"], ["major breach, wake people up", "large incident that needs people now"])}, weight=2.0),
    score("severity", ["severity", "priority", "impact", "level"], ["Severity of the incident", "How severe is it?", "Priority of the alert", "Impact level"],
          [[("p3_low", ["p3"]), ("p2_medium", ["p2"]), ("p1_high", ["p1"]), ("p0_critical", ["p0"])]] * 4 + [[("low", ["p3"]), ("medium", ["p2"]), ("high", ["p1"]), ("critical", ["p0"])], [("minor", ["p3", "p2"]), ("major", ["p1", "p0"])],
           [("info", ["p3"]), ("warning", ["p2"]), ("serious", ["p1"]), ("disaster", ["p0"])]], 2.0),
    boolean("action", ["monitor"], ["ignore", "harmless", "false_alarm", "benign"], ["Is it harmless?", "Is the alert benign?", "Can we just keep watching?"], [("harmless, blocked or approved", "needs a reaction")], .5),
    boolean("action", ["revoke_key"], ["credential_leak", "key_leaked", "secret_exposed"], ["Did a credential leak?", "Is a key, token or password in wrong hands?"], [], .5),
    boolean("action", ["isolate_host"], ["infected", "malware", "isolate"], ["Is a machine infected?", "Must a host be taken off the network?"], [], .5),
    boolean("wake", ["yes"], ["wake_up", "page", "call_team"], ["Wake the on-call team?", "Does this need people out of bed?"], [("severe incident", "can be handled in office hours")], .5)])

INJECTION = dict(context=["Guard in front of a chat assistant.", "Filter for user input.", "Input guard."], keys=["user_input", "input", "message", "prompt"], qs=[
    boolean("injection", ["yes"], ["injection", "prompt_injection", "attack", "jailbreak", "manipulation", "malicious"], ["Does the input try to override the instructions of the assistant?", "Is this a prompt injection?", "Does the user try to manipulate the assistant?",
            "Is it an attempt to break the rules of the model?", "Jailbreak attempt?"], [("tries to override, leak or bypass the instructions", "an ordinary request"), ("attack", "harmless")], 3.0),
    boolean("injection", ["no"], ["safe", "benign", "ordinary", "harmless", "allow"], ["Is the input harmless?", "Is this an ordinary request?", "May the input pass?"], [("ordinary request", "manipulation attempt"), ("harmless", "attack")], 1.5),
    choice("injection", ["verdict", "class", "gate", "decision"], ["Classify the input", "What should the guard do?", "Kind of input"],
           {"yes": (["block", "attack", "injection", "malicious"], ["tries to override or leak the instructions", "manipulation"]), "no": (["allow", "benign", "normal", "harmless"], ["an ordinary request", "nothing suspicious"])}, weight=1.5),
    score("injection", ["risk", "threat", "suspicion"], ["How suspicious is the input?", "Threat level"], [[("harmless", ["no"]), ("attack", ["yes"])], [("low", ["no"]), ("high", ["yes"])]], 1.0)])

ROUTER = dict(context=["You steer a coding agent.", "Pick the next tool of the agent."], keys=["prompt", "task", "request"], qs=[
    choice("tool", ["tool", "next_tool", "action", "step"], ["Which tool should the agent use next?", "Next tool", "Choose the tool for this request", "What should the agent do?"],
           {"search": (["search", "search", "find"], ["find where something is", "look through the project"]), "read_code": (["read_code", "read_code", "open_file"], ["read and explain code", "look at one file"]),
            "edit_code": (["edit_code", "edit_code", "modify"], ["change the code", "write to files"]), "run_tests": (["run_tests", "run_tests", "test"], ["check that everything works", "execute the tests"]),
            "ask_user": (["ask_user", "ask_user", "clarify"], ["the request is unclear", "ask for details"])}, weight=3.0),
    boolean("tool", ["edit_code"], ["writes", "changes_files", "needs_edit"], ["Will files be changed?", "Does the request need an edit?"], [("code must be changed", "nothing is written")]),
    boolean("tool", ["ask_user"], ["unclear", "vague", "needs_clarification"], ["Is the request unclear?", "Is more information needed from the user?"], [("too vague to act on", "clear enough")]),
    boolean("tool", ["run_tests"], ["testing", "runs_tests"], ["Does the request ask for a test run?", "Should the tests be run?"], [])])

CONTRACT = dict(context=["You audit vendor contracts.", "Contract clauses are checked here.", "Legal review of a clause."], keys=["clause_text", "clause", "text", "contract"], qs=[
    boolean("renews", ["yes"], ["auto_renews", "renewal", "auto_renewal", "extends_itself"], ["Does the contract renew automatically?", "Is there an automatic renewal?", "Is the term extended without action?"], [("extends by itself", "ends or needs a new agreement")], 2.0),
    choice("cap", ["liability_cap", "cap", "liability"], ["How is liability limited?", "Liability cap", "Limit of liability"],
           {"uncapped": (["uncapped", "unlimited"], ["no upper limit"]), "capped_12m": (["capped_12m", "one_year_fees"], ["limited to twelve months of fees"]), "capped_super": (["capped_super", "super_cap"], ["a higher cap for special claims"])}, weight=2.0),
    boolean("cap", ["uncapped"], ["unlimited_liability", "no_cap"], ["Is liability unlimited?", "Is there no cap?"], [("no upper limit", "capped")], .7),
    score("legal", ["legal_risk", "risk", "exposure"], ["Legal risk of the clause", "Risk for the customer", "How risky is the clause?"],
          [[("minimal", ["minimal"]), ("moderate", ["moderate"]), ("elevated", ["elevated"]), ("severe_blocker", ["severe_blocker"])]] * 2 + [[("low", ["minimal", "moderate"]), ("high", ["elevated", "severe_blocker"])]], 2.0)])
