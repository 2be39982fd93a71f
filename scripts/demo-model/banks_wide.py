"""Third helping for the three core policies, in longer and more varied sentences than the first two: urgency shown by what
happens rather than by the word, tone, code titles and remarks, security alerts. phrases.py imports it last.
"""
import banks as B
from banks_more import alerts, more

more(B.URGENT_STRONG, """
our doors open in an hour and nothing can be sold
patients are waiting in the corridor because of this
the auditors arrive this afternoon and we need it before then
the payroll run closes at noon today
a truck is standing at the ramp and cannot leave
the exam starts in twenty minutes and students cannot get in
we are on air tonight and depend on it
trading opens soon and we are blind
there is a queue of people at the counter right now
the flight boards shortly and I have no ticket
the court deadline ends at midnight
visitors are turned away while I write this
the whole shift is sent home if it does not work soon
if it is not back by lunch we lose the contract
we have been at a complete halt since this morning
orders keep failing as we speak
the demonstration for our biggest customer begins any minute
somebody has to look at it before the end of the hour
drop everything else, please
wake up whoever is on duty
it cannot wait until tomorrow
tomorrow is too late
the emergency line sent me here
production is down
""")
more(B.NOT_URGENT, """
it is only something I noticed in passing
we have a workaround that does the job
I am away until the end of the month anyway
put it on the pile
just curious how it is meant to work
whenever somebody gets round to it
it does not stop anybody from working
we can live with it
it is more of a cosmetic matter
no deadline on my side
sometime during the quarter is early enough
it bothers only me
please do not interrupt anything for this
I will check back in a couple of weeks
a reply by the end of next week is plenty
this is for our planning next year
feel free to close it if it takes too much effort
nothing depends on it today
it is a small wish
I can wait
""")
more(B.TONE["calm"], """
hope you are having a pleasant week
thanks in advance for looking into it
all the best from our team
your guide was easy to follow
warm greetings
I am sure it is a simple thing
we have been happy customers for years
it is nobody's fault
I would be glad about a short hint
take the time you need
thank you for the patience with my questions
great product, by the way
cheers
much obliged
have a lovely weekend
sorry to bother you with such a detail
""")
more(B.TONE["frustrated"], """
this is the third message about the same thing
I had expected an answer by now
it is wearing us out
we keep going in circles
your last reply did not help at all
honestly, I am losing confidence
it was promised for last week
I should not have to chase this
that is not what we pay for
each time I get a different explanation
my patience is running thin
again the same trouble
it makes our daily work harder than it should be
I was told it would be sorted out and it is not
nobody seems to feel responsible
it has been going on for weeks
frankly, we are let down
could somebody finally take care of it
I find that hard to accept
we lost half a day over it
""")
more(B.TONE["furious"], """
I want the name of your manager, NOW
you have robbed us
this is the most pathetic company I ever dealt with
how dare you
are you completely out of your minds
I will tell everybody to stay away from you
you ruined my whole week, you useless bunch
go to hell with your excuses
I am done with your lies
my lawyer is going to have fun with you
what a bunch of incompetent fools
SHAME ON YOU
you should be ashamed of this garbage
I have never been treated with such contempt
do you even have a brain over there
you people are a bad joke
give me back what you stole
absolutely disgraceful, every one of you
I am shaking with anger
I will report you to the authorities
""")
more(B.BILLING, """
the amount on the statement differs from what we agreed
we were promised a discount that does not show up
please send the paperwork for our tax office
my bank says you took the sum twice
the yearly fee went up without notice
I would like to pay by bank transfer from now on
the company address on the receipt is the old one
you still charge me although I left in {month}
our purchase order number is missing on the bill
can the due date be moved by two weeks
why do I pay for ten seats when we use six
the coupon was accepted but the full price was taken
I need a copy of all bills of last year
when will I get my money back
the reminder says we owe {money}, but we paid
is there a cheaper plan for schools
""")
more(B.SUPPORT, """
where do I find the setting for the language
which menu lets me hide a column
a new colleague starts on {day} and needs a seat in our space
I cannot remember which address I signed up with
can two people work on one document
what does the grey symbol beside a name mean
is there a short course for beginners
how would I hand over my projects to {person}
I got a new phone and the login code goes to the old one
please explain the difference between the two roles
could you walk me through the first steps
I would like to merge my two accounts
how long do you keep deleted items
may I use it on several devices
the welcome mail never reached me
which formats can I import
""")
more(B.ENG_MINOR, """
the chart is drawn outside of its frame
after the update the list jumps back to the first entry
two dates are swapped in the preview
the filter shows entries that it should hide
scrolling stutters in long tables
the counter is off by one
a tooltip stays on the screen
umlauts turn into question marks in the file
the dark mode leaves one panel white
copying a table loses the line breaks
undo skips a step now and then
the mobile view cuts off the last row
""")
more(B.ENG_MAJOR, """
every request ends in an error 500
nobody in the building can open the program
the database refuses all connections
the service restarts every few seconds
saved work of {who} is gone since the update
pages stay blank for {who}
the interface returns nothing but timeouts
payments cannot be completed on our site, the gateway of {app} is down
all sensors stopped sending at {num} past
the nightly job never finished and {who} {stuck}
the app closes itself right after the start on all phones
synchronisation has overwritten current files with old ones
""")
more(B.CR_TITLE["bugfix"], """
Handle an empty {var} in {func}
Do not lose the last {var} when saving
Correct rounding in {area}
Stop {func} from running twice
Avoid division by zero in {area}
Wait for the lock before writing {var}
Return an error instead of crashing in {func}
Repair broken pagination on the {page}
Close the connection after {func}
Correct the time zone of {var}
Retry {func} when the network drops
{area} no longer hangs on long input
""")
more(B.CR_TITLE["feature"], """
Let users choose a {var}
Support several languages on the {page}
Notify people when a {var} changes
New export for {area}
Users can now search by {var}
Show a preview before saving
Allow {newthing} for administrators
Import contacts from a file
Offer {newthing} to early testers
Offer a keyboard shortcut for {func}
""")
more(B.CR_TITLE["refactor"], """
Give {func} a clearer name
Remove dead code from {area}
Merge two copies of {func}
Extract a helper for {var}
Move {func} into its own module
Use one style for imports
Make {area} easier to read, no change in behaviour
Replace magic numbers with named constants
Shorten {func}
Tidy up {file}
Drop an unused parameter of {func}
Flatten nested loops in {area}
""")
more(B.CR_TITLE["security"], """
Require a login for the {page}
Hash tokens before they are stored
Limit attempts to sign in
Escape {var} before it is shown
Check permissions in {func}
Rotate keys of {area}
Do not write secrets to the log
Replace a parser that attackers could crash
Reject unsigned requests in {area}
Use prepared statements in {func}
Set secure flags on cookies
Expire sessions after an hour
""")
more(B.CR_OK_NOTE, """
Two colleagues approved it.
I ran it locally and everything works.
Covered by new tests, all green.
Small and easy to follow.
Ready from my side.
Benchmarks show no difference.
Reviewed together with {person}, no objections.
Behind a switch that is off by default.
Manual check on staging was fine.
All comments are addressed.
Ship it.
The regression test fails without and passes with the change.
""")
more(B.CR_FLAW_NOTE, """
I have not tried to run it.
Not tested at all.
One test still fails and I do not know why.
I left a few debug lines in.
The second half follows later.
Work in progress.
This breaks older clients.
The reviewer has open questions.
It works only on my laptop.
I commented out the failing test.
There is no way back once it is deployed.
Do not merge before {day}.
""")
for lvl, text in (("critical", """
+    query("DELETE FROM {var} WHERE id = " + request.id)
+    os.system("rm -rf " + {var})
+    if user.name == "admin": return True
+    return HttpResponse(open(request.path).read())
+    eval(request.body)
-    verify_token(request)
+    SECRET = "a8f3-live-key"
+    pickle.loads(request.data)
"""), ("high", """
-    with lock:
+    except Exception: pass
+    while True: retry()
+    timeout = None
+    db.drop_column("{var}")
-    conn.commit()
+    cache[user] = {var}  # never cleared
+    balance -= amount  # no check
"""), ("medium", """
+    time.sleep(5)
+    for x in all_rows: load(x.id)
+    # TODO handle errors
+    return None  # should not happen
+    print({var})
+    {var} = {var} or {}
"""), ("low", """
+    # fixme: wording
+    tmp = {var}
+    x1 = {func}({var})  # naming
+    import unused_module
""")):
    B.CR_FLAW.extend((l.replace("{}", "{{}}"), lvl) for l in B.lines(text))
more(B.SEC_NOTE_NEG, """
Nothing was copied.
The files stayed encrypted all the time.
Only a test system without real data.
The attempt failed at the first step.
We checked the traffic, nothing went out.
No customer is affected.
The account had no access to records.
Storage logs show no access.
""")
more(B.SEC_NOTE_POS, """
The archive is offered on a forum.
Several gigabytes went to an unknown address.
Customers found their own data online.
The dump contains real names.
Mailboxes were read for days.
Backups were copied too.
A journalist received samples.
Outbound traffic confirms the theft.
""")
alerts("""
{acct} mistyped the password twice and then got in | .01 | .97 .03 0 0 | .95 .05 0 0
routine update restarted {host} during the night | .01 | .98 0 .02 0 | .96 .04 0 0
firewall dropped packets from {ip} as usual | .01 | .98 0 .02 0 | .94 .06 0 0
{person} plugged in a new keyboard | .01 | .98 .01 .01 0 | .96 .04 0 0
the mail filter caught an advert | .01 | .99 .01 0 0 | .97 .03 0 0
certificate of {svc} runs out in thirty days | .01 | .96 .03 0 .01 | .85 .15 0 0
a visitor asked for the wireless password at the desk | .02 | .96 .04 0 0 | .9 .1 0 0
planned penetration test touches {host} today | .02 | .97 .01 .02 0 | .93 .07 0 0
a door sensor reported a fault | .01 | .98 0 .01 .01 | .92 .08 0 0
web crawler visits {svc} more often than last week | .02 | .97 .01 .01 .01 | .93 .07 0 0
somebody outside uses the {secret} of {acct} | .4 | .02 .93 .01 .04 | .02 .33 .58 .07
{person} sent the {secret} to the wrong mailing list | .25 | .02 .94 0 .04 | .03 .4 .52 .05
a contractor kept a valid {secret} after leaving | .25 | .03 .93 0 .04 | .05 .45 .45 .05
the {secret} of {svc} can be read in a public notebook | .3 | .02 .93 0 .05 | .02 .35 .56 .07
sign-ins of {acct} from two continents at once | .4 | .05 .88 .02 .05 | .02 .3 .6 .08
stolen laptop held a stored {secret} | .35 | .02 .88 .04 .06 | .02 .33 .57 .08
{secret} appears in a crash report sent to a vendor | .25 | .03 .93 0 .04 | .05 .45 .45 .05
{acct} approved a login that nobody asked for | .4 | .03 .9 .02 .05 | .02 .28 .62 .08
old {secret} found in the history of a repository | .2 | .04 .93 0 .03 | .08 .5 .38 .04
someone guessed the {secret} of {acct} | .4 | .02 .92 .02 .04 | .02 .3 .6 .08
{host} contacts a known control server every minute | .4 | .01 .02 .91 .06 | 0 .15 .72 .13
unknown process on {host} hides from the task list | .35 | .02 .01 .92 .05 | 0 .2 .69 .11
antivirus on {host} was switched off by a script | .3 | .03 .02 .91 .04 | .02 .28 .62 .08
{host} sends spam at night | .15 | .02 .04 .91 .03 | .03 .45 .48 .04
{person} opened an attachment and the screen went strange | .3 | .02 .03 .91 .04 | .01 .25 .65 .09
{malware} came with a game on the computer of {person} | .3 | .02 .02 .92 .04 | .02 .3 .6 .08
files on {host} get new endings one after another | .4 | 0 .01 .88 .11 | 0 .08 .72 .2
{host} attacks its neighbours in the network | .35 | .01 .02 .91 .06 | 0 .16 .72 .12
a hidden user was created on {host} by an intruder | .45 | .01 .05 .87 .07 | 0 .12 .73 .15
the processor of {host} is busy with mining coins | .12 | .04 .02 .91 .03 | .05 .52 .4 .03
{pdata} from {svc} turned up on the dark web | .99 | 0 .04 .02 .94 | 0 0 .12 .88
all servers of {svc} are encrypted and a ransom is demanded | .85 | 0 .01 .12 .87 | 0 0 .06 .94
an outsider holds administrator rights on the whole domain | .75 | 0 .07 .1 .83 | 0 0 .12 .88
hundreds of clients complain about misuse of their {pdata} | .97 | .01 .05 .01 .93 | 0 .01 .17 .82
the intruder has been inside for months and took {pdata} | .99 | 0 .03 .06 .91 | 0 0 .1 .9
several sites are down after an attack on {svc} | .4 | .01 .01 .12 .86 | 0 .02 .28 .7
the attacker deleted our backups | .6 | 0 .02 .12 .86 | 0 .01 .2 .79
press asks about the theft of {pdata} | .97 | .01 .02 .01 .96 | 0 0 .15 .85
""")
