"""Security alerts, second helping, written for the demo model: text | data compromise | action | severity (see banks.SEC)."""
import banks as B
from banks_more import alerts, more

B.FILL.update({k: [x.strip() for x in v.split(",")] for k, v in {
    "harmless": "a port scan, a failed login, a ping sweep, an expired certificate warning, a spam mail, a policy reminder, a duplicate alert, a browser warning, an outdated signature file, a login from a new laptop, a blocked download, a password change, a vulnerability scan, a license warning, a clock drift warning",
    "okwhy": "caused by our own scanner, confirmed as harmless, part of a planned test, approved by the owner, blocked automatically, expected during maintenance, explained by the user, a known false positive, done by the backup job, already handled by the mail filter",
    "badhost": "is infected, shows signs of infection, talks to a command server, runs malicious code, tries to spread malware, has an active backdoor, was taken over, encrypts its own files, opens a reverse shell, scans the internal network with an attack tool, executes an unsigned dropper, hides a rogue process",
    "keybad": "was leaked, was pushed to a public repository, was posted in a chat, was found on a paste site, is used by an unknown person, was stolen by phishing, was printed in a build log, was sent to the wrong recipient, is known to outsiders, was exposed in a screenshot, was found in a mobile app, was reused from a breached site",
    "bigbad": "were stolen, were published, were copied by attackers, are for sale on a forum, were downloaded by an unknown party, were sent to a foreign server, leaked to the press, were exfiltrated overnight",
}.items()})

alerts("""
{harmless} on {host}, {okwhy} | .01 | .98 .01 .01 0 | .94 .06 0 0
{harmless} from {ip}, {okwhy} | .01 | .98 .01 .01 0 | .94 .06 0 0
{harmless} for {acct}, {okwhy} | .01 | .98 .02 0 0 | .94 .06 0 0
informational: {harmless} | .01 | .98 .01 .01 0 | .95 .05 0 0
single {harmless} reported by {person} | .02 | .95 .03 .02 0 | .88 .12 0 0
user {acct} forgot the password and was locked out | .01 | .96 .04 0 0 | .95 .05 0 0
the login came from {city} because {person} is travelling | .02 | .96 .04 0 0 | .94 .06 0 0
a employee received a phishing mail and deleted it | .01 | .97 .03 0 0 | .92 .08 0 0
{num} login attempts from {ip} were all rejected | .02 | .95 .05 0 0 | .85 .15 0 0
disk almost full on {host}, no attack | .01 | .98 0 .01 .01 | .93 .07 0 0
a vulnerability with low rating was found on {host} | .02 | .94 .01 .05 0 | .75 .25 0 0
an agent on {host} has not reported for an hour | .03 | .9 0 .1 0 | .75 .25 0 0
the intrusion detection blocked an exploit against {svc}, nothing got through | .02 | .93 .01 .05 .01 | .7 .28 .02 0
suspicious mail quarantined before delivery | .01 | .98 .02 0 0 | .94 .06 0 0
unusual login hours of {acct}, a night shift | .03 | .93 .06 .01 0 | .88 .12 0 0
denied connection to a blacklisted domain from {host} | .03 | .85 .01 .14 0 | .7 .28 .02 0
security awareness test mail was opened by {person} | .01 | .97 .03 0 0 | .93 .07 0 0
new admin account created according to change request {num} | .02 | .94 .05 0 .01 | .9 .1 0 0
{secret} of {acct} {keybad} | .3 | .02 .93 0 .05 | .02 .35 .56 .07
the {secret} for {svc} {keybad} | .28 | .02 .93 0 .05 | .02 .38 .54 .06
a {secret} {keybad} | .27 | .02 .93 0 .05 | .03 .4 .52 .05
our {secret} for the cloud account {keybad} | .33 | .01 .92 0 .07 | 0 .28 .62 .1
{person} entered the {secret} on a fake page | .35 | .02 .94 .01 .03 | .03 .4 .52 .05
{acct} fell for a phishing page and typed the password | .35 | .02 .93 .02 .03 | .03 .42 .5 .05
{secret} committed to the public repository of {svc} | .28 | .01 .94 0 .05 | .02 .35 .56 .07
impossible travel: {acct} signed in from {city} and from {ip} within minutes | .4 | .06 .87 .02 .05 | .02 .3 .6 .08
the {secret} of a former employee is still used | .4 | .02 .93 0 .05 | .02 .38 .55 .05
attacker signs in with valid credentials of {acct} | .5 | .01 .87 .03 .09 | 0 .13 .72 .15
multi factor prompts bombed until {acct} accepted | .45 | .02 .9 .02 .06 | 0 .2 .68 .12
an unknown application received an access token of {acct} | .4 | .02 .93 .01 .04 | .02 .35 .57 .06
{host} {badhost} | .35 | .01 .02 .91 .06 | 0 .18 .7 .12
the machine {host} {badhost} | .35 | .01 .02 .91 .06 | 0 .18 .7 .12
endpoint {host} {badhost} since {day} | .37 | .01 .02 .9 .07 | 0 .15 .72 .13
laptop of {person} {badhost} | .35 | .01 .03 .91 .05 | 0 .2 .69 .11
server {host} {badhost}, user noticed nothing | .36 | .01 .02 .9 .07 | 0 .16 .71 .13
{malware} detected on {host} and still active | .35 | .01 .02 .92 .05 | 0 .18 .7 .12
{malware} spreads over a usb stick on {host} | .3 | .01 .01 .93 .05 | 0 .22 .68 .1
an exploit succeeded against {host} and code was run | .45 | .01 .03 .86 .1 | 0 .08 .74 .18
a macro in an attachment installed {malware} on {host} | .35 | .01 .02 .92 .05 | 0 .22 .68 .1
lateral movement starts at {host} | .45 | 0 .05 .82 .13 | 0 .06 .72 .22
a miner consumes the processor of {host} | .12 | .04 .02 .91 .03 | .05 .52 .41 .02
web shell discovered on {host} | .5 | 0 .03 .85 .12 | 0 .06 .74 .2
{pdata} {bigbad} | .99 | 0 .04 .04 .92 | 0 0 .13 .87
{pdata} of {svc} {bigbad} | .99 | 0 .04 .04 .92 | 0 0 .13 .87
{num} thousand {pdata} {bigbad} | .99 | 0 .03 .03 .94 | 0 0 .1 .9
confirmed: {pdata} {bigbad} | .99 | 0 .03 .03 .94 | 0 0 .1 .9
an intruder had access to {pdata} for weeks | .97 | 0 .06 .08 .86 | 0 0 .17 .83
the whole company is encrypted by {malware} | .75 | 0 0 .2 .8 | 0 0 .03 .97
all servers are encrypted and a ransom is demanded | .75 | 0 0 .2 .8 | 0 0 .03 .97
attackers control the domain controller and the backups | .85 | 0 .03 .15 .82 | 0 0 .04 .96
massive data theft at {svc} in progress | .98 | 0 .03 .15 .82 | 0 0 .08 .92
hackers threaten to publish {pdata} they took | .97 | 0 .03 .03 .94 | 0 0 .1 .9
the production network is under full control of an attacker | .85 | 0 .02 .16 .82 | 0 0 .04 .96
customers report that {pdata} from us circulate on the internet | .97 | .01 .04 .01 .94 | 0 0 .14 .86
database of {svc} was open to the internet and was copied | .97 | .01 .06 .05 .88 | 0 .02 .28 .7
destruction of data on {svc} by an outsider, systems fail | .8 | 0 .02 .18 .8 | 0 0 .06 .94
supply chain attack hit {svc} and all connected systems | .7 | 0 .05 .2 .75 | 0 0 .12 .88
""")
more(B.SEC_NOTE_NEG, """
No data was accessed.
No data was lost.
No information was exposed.
Nothing was stolen.
The files were not touched.
We found no trace of data theft.
The account holds no sensitive data.
Access logs show no reads.
The attacker did not get in.
Data is safe.
All records are intact and nobody read them.
Investigation found no exposure.
Blocked before any data could leave.
""")
more(B.SEC_NOTE_POS, """
Data has been stolen.
Customer records were exposed.
The attacker copied files.
Sensitive documents were taken.
Exfiltration is confirmed.
The database was read.
Several gigabytes left the network.
Personal data is in the hands of strangers.
The dump is already online.
Files were downloaded from our servers.
Private messages were read by the intruder.
We lost confidential data.
""")
more(B.SEC_NOTE_ANY, """
Detected by the endpoint agent.
Correlation id {num}.
{person} is looking at it.
The alert came from {svc}.
It happened {when}.
Asset: {host}.
Analyst: {person}.
Raised by rule {num}.
Time zone is {city}.
""")
