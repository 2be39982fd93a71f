"""Code review, second helping: titles, diffs, remarks and flaws, written for the demo model."""
import banks as B
from banks_more import more

B.FILL.update({k: [x.strip() for x in v.split(",")] for k, v in {
    "area": "the checkout, the login form, the search page, the mail sender, the report module, the cart, the importer, the scheduler, the parser, the profile page, the upload handler, the cache, the invoice printer, the notification service, the export job, the settings screen, the API client, the date picker, the session store, the billing service",
    "wrong": "the wrong total, an empty list, a stale value, a duplicate row, the wrong date, a negative number, an old {var}, the wrong {var}, a broken link, a blank page, an exception, the wrong currency",
    "newthing": "dark mode, a CSV export, a search bar, keyboard shortcuts, a weekly digest, drag and drop, an undo button, a bulk edit, a map view, a calendar view, avatars, a wish list, two new languages, voice search, a print view, tags, a dashboard, push notifications, guest accounts, a public API",
    "hole": "SQL injection, cross-site scripting, path traversal, an open redirect, a timing attack, session hijacking, request forgery, a privilege escalation, command injection, leaked credentials, a replay attack, clickjacking, an XXE attack, brute force attempts, insecure deserialisation",
}.items()})

for cat, text in {"bugfix": """
Fix {wrong} in {area}
Fix: {area} showed {wrong}
Correct {wrong} returned by {func}
{area} no longer crashes when {var} is empty
Bugfix for {area}
Fix regression in {area}
Fix a memory leak in {func}
Fix deadlock between {func} and {func}
Repair {area} after the last release
Handle the case where {var} is null
Fix infinite loop in {func}
Fix typo that broke {func}
Restore the missing {var} in {area}
Resolve issue {num}: {area} shows {wrong}
Stop {area} from losing the {var}
Fix failing upload of large files
Correct the rounding error in {func}
Fix the time zone bug in {area}
Fix flaky behaviour of {func}
Avoid division by zero in {func}
Guard against an empty {var} in {func}
Fix incorrect sorting in {area}
Fix sign error in {func}
Prevent duplicate {var} in {area}
Fix encoding problem in {area}
Fix broken pagination
Wrong {var} after a retry, fixed
Fixes the crash reported in ticket {num}
Fix null pointer in {func}
Make {func} return the correct {var} again
Patch the bug that made {area} show {wrong}
Undo the change that broke {area}
Fix double submit in {area}
Fix timeout in {func}
Fix off by one in {area}
""", "feature": """
Add {newthing}
Add {newthing} to {area}
Introduce {newthing}
Implement {newthing} for {area}
New feature: {newthing}
Support {newthing} in {area}
Let customers use {newthing}
Users can now use {newthing}
First version of {newthing}
Build {newthing}
Add a setting for {newthing}
Create an endpoint for {var}
Add new command to {area}
Allow users to filter by {var}
Add support for multiple {var}
Offer {newthing} in {area}
Provide {newthing} for administrators
Add a button that exports {var}
Enable {newthing} behind a flag
Ship {newthing}
Add login with a second factor for customers
New page with statistics about {var}
Extend {area} with {newthing}
Add an option to hide {var}
Add webhook for new {var}
Make {var} configurable by the user
Show a preview of {var} in {area}
Add {var} column to the report
Introduce an endpoint that returns {var}
Add email reminders to {area}
""", "refactor": """
Refactor {area}
Refactor {area} into smaller functions
Simplify {area}
Clean up {area}
Tidy up {area}, behaviour unchanged
Restructure {area}
Split {func} into three functions
Rename {func} for clarity
Extract a base class for {area}
Extract {func} into a helper
Move {area} to its own package
Remove unused code in {area}
Delete dead code
Replace duplicated code in {area}
Use a dictionary instead of nested ifs in {func}
Convert {func} to a generator
Inline {func}
Unify the two versions of {func}
Reduce nesting in {func}
Improve naming in {file}
Reorganise the folders of {area}
Turn {area} into a module
Decouple {area} from the database layer
Remove the old helper {func}
Pull common code out of {func} and {func}
Make {area} easier to read
Modernise the syntax in {file}
Group the imports in {file}
Collapse three similar functions into one
Replace magic numbers by constants in {file}
No functional change: reorder methods in {file}
""", "security": """
Fix {hole} in {area}
Prevent {hole} in {area}
Protect {area} against {hole}
Close {hole} in {func}
Security fix for {area}
Harden {area} against {hole}
Mitigate {hole}
Block {hole} in {area}
Patch security vulnerability in {area}
Escape user input in {area}
Sanitise {var} before rendering
Use parameterised queries in {func}
Require authentication for {area}
Add a permission check to {func}
Check the signature of {var}
Encrypt {var} at rest
Hash tokens before storing them
Rotate the leaked {var} key
Remove credentials from {file}
Stop writing passwords to the log
Validate redirect targets in {area}
Limit failed logins in {area}
Upgrade a library with a known vulnerability
Apply the fix for CVE-2031-{num}
Set secure and httponly flags on cookies
Enforce TLS in {area}
Disable weak ciphers
Deny access to {func} without a role
Verify certificates in {area}
Drop root privileges in {area}
""", "docs": """
Update the documentation of {area}
Explain {newthing} in the manual
Fix typos in the guide
Add a chapter about {area} to the handbook
Document the {var} parameter
Write release notes
Correct the example in the README
""", "test": """
Add tests for {area}
Test {func} with an empty {var}
Raise the test coverage of {area}
Fix the flaky test of {area}
Add a regression test for issue {num}
""", }.items():
    more(B.CR_TITLE[cat], text)

for cat, text in {"bugfix": r"""
-    if {var} > limit:\n+    if {var} >= limit:
-    total -= {var}\n+    total += {var}
+    if ({var} == null) return;
-    {var} = {var} + 1\n+    {var} = {var} + offset
-    return items[0]\n+    return items[0] if items else None
+    lock.release()
-    date = parse({var})\n+    date = parse({var}, tz=UTC)
-    sort(key=str)\n+    sort(key=int)
-    if {var} and {var}:\n+    if {var} or {var}:
+    {var} = {var}.strip()
-    except KeyError: raise\n+    except KeyError: {var} = default
-    index = len({var})\n+    index = len({var}) - 1
""", "feature": r"""
+def export_{var}(rows):\n+    return to_csv(rows)
+router.post("/{var}", {func})
+class {var}View(Page):\n+    title = "{var}"
+  <input name="search" placeholder="{var}">
+    if settings.enable_{var}:\n+        show({var})
+async function {func}() {{ return api.list("{var}") }}
+CREATE TABLE {var} (id int, name text)
+    menu.add("{var}", {func})
+    notify(user, "{var} is ready")
+pub struct Reminder {{ {var}: String }}
""", "refactor": r"""
-def get(a, b, c):\n+def get(request):
-    {func}_old({var})\n+    {func}({var})
-    result = []\n-    result.append({var})\n-    return result\n+    return [{var}]
-from utils import *\n+from utils import {func}
-    var {var} = x;\n+    const {var} = x;
-    self.a = {var}\n+    self.{var} = {var}
-def {func}():\n-    pass
-    if x == True:\n+    if x:
-# moved to {file}
+    return {func}({var})  # extracted
""", "security": r"""
+    if not has_role(user, "{var}"): abort(403)
-    render(raw({var}))\n+    render(escape({var}))
-    query("... WHERE id=" + id)\n+    query("... WHERE id=$1", id)
+    token = secrets.token_urlsafe(32)
-    cookie.set({var})\n+    cookie.set({var}, secure=True, httponly=True)
+    verify_signature({var}, key)
-    password = "{var}"\n+    password = vault.read("{var}")
+    limiter.check(ip, max=5)
-    if token == {var}:\n+    if hmac.compare_digest(token, {var}):
+    assert url.host in ALLOWED_HOSTS
"""}.items():
    more(B.CR_OK[cat], text)

more(B.CR_FLAW_NOTE, """
The unit tests do not pass.
Three tests are red.
This does not build.
Compilation fails in {file}.
The change is incomplete.
Half of it is missing.
Draft, not ready for review.
Please wait with the merge.
The review found a data loss.
There are unresolved comments.
{person} rejected an earlier version and nothing was changed.
It has merge conflicts.
Nobody has tested this.
It was not tested at all.
Crashes when I try it.
It does not do what the title says.
This will break production.
The migration cannot be undone.
The error handling was removed.
The pipeline fails on every run.
A reviewer asked for a rewrite.
The security team has objections.
Do not merge.
Needs more work before it can go in.
I am not sure that it works.
The tests were commented out.
""")
more(B.CR_OK_NOTE, """
All checks are green.
Every test passes.
Tests added.
New tests cover the change.
Approved by two reviewers.
{person} reviewed and approved it.
QA has tested it.
Tested on staging for a week.
The change is small and clear.
Documented and tested.
No open comments.
The pipeline passes.
Verified by hand and by tests.
Works as described.
Rolled out to beta users without problems.
Good to go.
Looks good to me.
The build is green and the coverage went up.
Ready for release.
Nothing else depends on it.
""")
more(B.CR_AREA_HIGH, """
Changes how payments are booked.
Every login goes through this code.
Deletes old rows from the customer table.
Modifies production data.
Alters the authentication flow.
Touches the core of the billing engine.
A mistake here would hit all customers.
The migration rewrites the whole orders table.
This is the most critical service we have.
It replaces the encryption of stored data.
""")
more(B.CR_AREA_LOW, """
Only comments change.
Internal script, nobody else uses it.
Only documentation.
Cosmetic change.
Affects a test helper only.
The feature is not enabled anywhere.
A label on one page changes.
Limited to the developer tools.
Only formatting.
Trivial change.
""")
for lvl, text in {"critical": r"""
+    query = "SELECT * FROM {var} WHERE id = " + request.id
+    db.raw("DELETE FROM {var} WHERE name = '" + name + "'")
+    password = "letmein"
+    AWS_SECRET = "AKIA{num}{num}"
+    token = "ghp_{num}{num}{num}"
+    eval({var})
+    os.system({var})
+    exec("rm " + {var})
-    if not authorized(user): raise Denied()
-    @login_required
-    require_permission("{var}")
+    auth_enabled = False
+    subprocess.call("convert " + {var}, shell=True)
+    return render_template_string({var})
+    db.execute("DROP TABLE {var}")
+    yaml.load({var}, Loader=UnsafeLoader)
+    private_key = "-----BEGIN KEY-----{num}"
+    user.role = "admin"  # for everyone
""", "high": r"""
+    verify_ssl = False
+    print(password)
+    log.info("card number " + card)
+    hash = md5(password)
+    cors(origin="*")
+    while True: retry()
+    delete_all({var})
+    {func}(None)
-    validate({var})
-    backup({var})
+    shutil.rmtree({var})
+    document.write({var})
""", "medium": r"""
+    except Exception: pass
+    # TODO handle errors
+    # HACK: wait until it works
+    time.sleep(10)
+    if {var} == "x" or True:
-    test_{func}()
+    @skip("fails sometimes")
+    global {var}
+    return 0  # fake value
""", "low": r"""
+    console.log({var})
+    debugger
+    # asdf
+    print("here")
"""}.items():
    B.CR_FLAW.extend((l, lvl) for l in B.lines(text))
