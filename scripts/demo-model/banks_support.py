"""Support tickets, second helping: billing, usage and fault reports, urgency and tone, written for the demo model."""
import banks as B
from banks_more import more

B.FILL.update({k: [x.strip() for x in v.split(",")] for k, v in {
    "app": "your app, the portal, your website, the software, the platform, our account page, the system, your tool, the service, the product, the online shop, the web interface, the mobile version, the integration, the plugin, the add-in",
    "amount": "$500, $49, €120, $1,200, £75, $89.90, €2,300, $19, $3,450, €15, 40 dollars, 300 euros, twenty pounds",
    "again": "again, for the second time, once more, for the third time this month, yet again, over and over",
    "when": "this morning, today, yesterday, last night, on {day}, since {day}, an hour ago, last week, in {month}",
}.items()})

more(B.BILLING, """
I was billed {amount} twice for my {thing}
I was charged {amount} twice {when}
you billed me two times for the {thing} {when}
we have been double charged for the {thing}
there are two identical charges of {amount} on my card
my credit card was debited twice for one order
the annual renewal was taken from my account although I cancelled it
please refund the {amount} you took {when}
I want a refund for the {thing}
when will I get my refund of {amount}
I was charged for a plan that I never ordered
the amount on the invoice is higher than what we agreed
our accountant needs a corrected invoice for {month}
the invoice lists the wrong company name
can we pay by invoice instead of credit card
my payment was declined although the card is valid
how much is the {thing} per year
you still bill us for a user who left in {month}
the free trial ended and I was charged without warning
I cannot find the receipt for {month}
please send all invoices to our finance department
we paid the bill but got a payment reminder
the VAT number is missing on your invoices
why was my card charged {amount}
our bank shows a payment of {amount} to you that nobody here made
I upgraded and was charged the full price instead of the difference
please stop charging my card
the promo code for the {thing} did not reduce the price
could you split the invoice between two departments
the {thing} is more expensive than last year
I need to update the card we pay with
we would like to switch to annual billing
you took {amount} from my account after I had closed it
the statement for {month} contains a fee I do not understand
my chargeback was rejected by your team
I would like a copy of the contract price list
our payment went out on {day} but the account shows a balance
please confirm that the subscription is cancelled and nothing more is charged
the checkout charged me in dollars instead of euros
I have been paying for two subscriptions by mistake
""")
more(B.BILLING_BLOCK, """
our account was suspended for non-payment although the invoice is paid
the service was cut because your system says we owe {amount}
a wrong charge of {amount} has emptied our bank account
you locked us out over an unpaid invoice and our shop is closed
our card was charged ten times and the bank has blocked it
the payment for tonight's renewal fails and everything will be switched off
we cannot pay our staff because you withdrew {amount} too much
""")
more(B.SUPPORT, """
how can I export a report to a spreadsheet
I would like to know how to add a second administrator
where do I change my profile picture
can you tell me how to set my working hours
how do I subscribe to the newsletter
what is the maximum size of an attachment
how do I connect {app} with my calendar
I cannot remember which email address I registered with
my password reset mail does not arrive
the reset link has expired, please send a new one
I am not able to sign in with my new phone
how do I activate two factor authentication
please change the email of my account to a new one
could you add my colleague {person} as a user
we need instructions for setting up {app}
do you have a tutorial for beginners
is there a manual in German
how do I delete my account
which plan includes reports
can I use {app} on two computers
what is the difference between a project and a folder
how do I move a file to another folder
where can I see my earlier tickets
how do I switch {app} to another language
I do not understand how permissions work
please explain what the new role means
my account is locked after too many attempts
I never received the invitation to the workspace
how long are deleted items kept
can I restore something I deleted last week
is there a way to print all pages at once
we hired {num} people and want to give them access
please give {person} access to the shared folder
how can I unsubscribe from these mails
what do the coloured flags in the list mean
I want to learn how dashboards are built
how do I sort the list by date
I forgot the answer to my security question
please remove the former employee {person} from our team
could you tell me your opening hours
""")
more(B.SUPPORT_BLOCK, """
no one in our team can sign in because the administrator is on leave
I am locked out and have an exam to hand in
our only administrator lost the phone for the login code
my account was closed by mistake and I need my files
I removed my own access and cannot get back in
""")
more(B.ENG_MAJOR, """
{app} is down
{app} has been down {when} for all of us
{app} is completely offline
nothing works, {app} shows error {num} to everybody
your servers are not responding
we get an internal error on every page of {app}
all requests to the API fail with status 500
the login server is down, nobody gets in
the database lost our entries from today
every order placed {when} has disappeared
{app} crashed and all unsaved work is gone
production is down after your deployment
the whole site is unreachable
{app} has stopped sending data to our shops
the upgrade broke {app} for the entire company
all our terminals show a connection error
{app} keeps crashing for everyone in the office
since the release no order can be saved
our data was overwritten by {app}
the sync deleted all contacts of our customers
outage: {app} is not reachable from any location
complete failure of {app}, error {num} everywhere
the API returns nothing but timeouts
payments cannot be processed because {app} throws an exception
the cluster is down and no job runs
""")
more(B.ENG_MINOR, """
there is a bug in {app}
the button for saving does not react in {browser}
when I open a report the page stays blank for a few seconds
{app} shows a wrong date format
the search in {app} does not find words with accents
the list is not sorted correctly
I get a javascript error when I click on the chart
the filter resets itself whenever I go back
scrolling is jerky in {browser}
{app} shows the old logo after the update
an image is missing on the {page}
the preview shows the wrong page number
the counter in {app} is off by one
{app} displays strange characters instead of umlauts
the export contains an empty column
the notification badge does not disappear
the layout breaks on small screens
the dark mode has white text on a white background
a typo in the menu of {app}
the app logs a warning on every start
dragging a card does not work in {browser}
the clock in {app} shows the wrong time zone
the zoom level is forgotten after a reload
the table header does not line up with the columns
loading the {page} takes ten seconds since the update
the API documentation example returns a warning
copy and paste loses the formatting in {app}
the map is drawn twice in {browser}
there seems to be a memory leak in {app}
the spinner never stops although the page is complete
""")
more(B.URGENT_STRONG, """
this is urgent
urgent
very urgent
this is extremely urgent, please act {soonword}
we need an immediate solution
immediate help is required
help us immediately
please treat this as an emergency
every minute costs us money
our production line is stopped
we are unable to work
nobody can work
all work has stopped
our customers cannot buy anything
we have a hundred people waiting
the presentation starts in twenty minutes
we must deliver today and cannot
our business is at a standstill
this blocks our go-live today
it has to be fixed in the next hour
please call me immediately
we cannot wait any longer, this must be fixed {soonword}
the whole company is affected
the deadline is today
lives depend on it
I need this {soonword} or we lose the contract
this is a critical incident for us
our store opens in an hour and nothing works
we risk a fine if it is not solved today
time is running out
we are completely blocked
please answer within minutes
severity one, all hands needed
ASAP please
as soon as humanly possible, we are stopped
""")
more(B.URGENT_SOFT, """
we would be glad to have it this week
please reply when you can, preferably today
it is somewhat important for us
could you look at it in the next days
it slows us down a little
a fix before the weekend would be nice
we would like to close this topic soon
""")
more(B.NOT_URGENT, """
this can wait
it can wait
there is no urgency
nothing urgent
not pressing at all
whenever it suits you
when you have a spare moment
no deadline from our side
we are just wondering
it is only a question
I was merely curious about it
some day would be fine
an answer next month is early enough
this is a wish for a future version
no immediate action is needed
it does not affect our work
we found another way in the meantime
it is just a cosmetic detail
please handle the important tickets first
it has been like that for years and bothers nobody
feel free to answer after your vacation
only a suggestion for later
I can live without it
it is a nice to have
we are fine for the moment
""")
more(B.TONE["calm"], """
thank you in advance for your help
thanks for your time
thanks a lot
many thanks for your quick reply
could you kindly help me
I would appreciate your help
it would be great if you could check
please let me know if you need more details
have a great weekend
hi all
hello, I hope this finds you well
dear all, a question from our side
we are happy with your service so far
keep up the good work
your team is always friendly
no problem if it takes time
sorry for the trouble
it is only a small thing
with best wishes from {city}
looking forward to your answer
I am sure you will find a solution
thank you for looking into this
we really like working with {app}
all the best
please and many thanks
no hard feelings, these things happen
happy to help with more information
I love the new design, by the way
greetings, {person}
much appreciated
""")
more(B.TONE["frustrated"], """
this is frustrating
this is very frustrating for us
I am frustrated
I am really disappointed by this
we are not satisfied
I am not happy with your service
that is the second time this week
this happens {again}
I have reported this before and nothing changed
nobody answers my messages
I wrote to you three times without an answer
your support keeps sending me in circles
I have lost half a day because of this
why has nobody fixed this yet
it is annoying that I have to ask {again}
this should have been solved long ago
we expected a better quality
I am tired of explaining the same thing
we are slowly losing confidence in you
it is disappointing after so many years
your answer did not solve anything
I have been on hold for an hour
this makes our work harder than it should be
I do not understand why this takes weeks
it is a shame that this still happens
once again I have to complain
I am getting impatient
this is not the first time
we have waited long enough
the experience has been poor
honestly, this is not good enough
I cannot believe that this is still broken
what a waste of time
it keeps going wrong
I regret choosing this plan
your last update made everything worse
we are annoyed by the constant changes
""")
more(B.TONE["furious"], """
I have rarely been this furious
we are absolutely furious about this
this is an outrage
I am outraged by your behaviour
you are thieves
you are criminals and I will report you
this is a scam
you stole my money
stop lying to me
you have ruined my business
I demand to speak to your boss right now
this is completely unacceptable!!!
your company is a joke
I have had enough of this garbage
never again will I give you a cent
your incompetence is beyond belief
are you all asleep over there??
what is wrong with you people!
I want this fixed NOW or I go to the press
you will hear from my lawyer
the worst company I have ever dealt with
I hate your rotten software
you should be ashamed of yourselves
how stupid can one support team be
THIS IS A DISASTER!!!
UNACCEPTABLE!!!
I AM DONE WITH YOU
I could throw my computer out of the window, you morons
absolutely disgusting treatment of customers
your staff are rude and useless
go ahead and ignore me again, you cowards
I am shaking with anger
nobody treats me like this
what a bloody mess you have made
damn your company
I am beyond angry
you have the nerve to ignore me!
total idiots run this place
shame on your whole team
I will destroy your rating everywhere
""")
more(B.CHURN, """
we are going to switch to another provider
I am cancelling and moving to a competitor
if it is not fixed we will leave
we are considering other vendors
we will end the contract at the next date
I am about to close the account for good
""")
more(B.ASK_CALL, """
please call me on my mobile
can someone phone me this afternoon
I would like to be called back
I need to speak to someone on the phone
""")
more(B.SOLVED, """
it has been fixed, thank you
the issue is resolved now
everything works again since the restart
you may close this ticket
""")
