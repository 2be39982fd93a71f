"""A training aid that is no part of the checkpoint: the facts behind a state, read linearly from the mean of its rows."""
import torch

import banks_generic as G

FACTS = {"support": dict(urgent="yes no", team="billing support engineering", tone="calm frustrated furious", churn="yes no", call="yes no", solved="yes no"),
         "code": dict(category="bugfix feature refactor security docs test", approved="yes no", hole="yes no", risk="low medium high critical"),
         "security": dict(data="yes no", action="monitor revoke_key isolate_host page_oncall", severity="p3 p2 p1 p0", wake="yes no"), "injection": dict(injection="yes no"),
         "router": dict(tool="search read_code edit_code run_tests ask_user"), "contract": dict(renews="yes no", cap="uncapped capped_12m capped_super", legal="minimal moderate elevated severe_blocker"),
         "generic": dict(topic=list(range(len(G.TOPICS))), opinion=[1, 2, 3, 4, 5], price="yes no", person="yes no", city="yes no", date="yes no", animal="yes no", colour="yes no", question="yes no", thanks="yes no")}


class Probe(torch.nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.groups, n = [], 0
        for fam, attrs in FACTS.items():
            for a, keys in attrs.items():
                keys = keys.split() if isinstance(keys, str) else keys
                self.groups.append((fam, a, n, keys))
                n += len(keys)
        self.w = torch.nn.Linear(hidden, n)

    def forward(self, pool, facts):
        """pool [states, hidden]; facts: (family, {attribute: {key: probability}}) of each state. Mean cross-entropy."""
        out, cnt = self.w(pool.float()), 0
        loss = out.sum() * 0
        for fam, a, n, keys in self.groups:
            rows = [i for i, (f, d) in enumerate(facts) if f == fam and a in d]
            if rows:
                y = torch.tensor([[facts[i][1][a].get(k, 0.0) for k in keys] for i in rows])
                loss = loss - (torch.log_softmax(out[rows, n:n + len(keys)], -1) * y).sum()
                cnt += len(rows)
        return loss / max(1, cnt)
