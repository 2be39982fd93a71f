//! Tokens from the outside: every source against a fake on loopback, and every output searched for the token.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rsa::pkcs1v15::{Signature, VerifyingKey};
use rsa::pkcs8::{EncodePrivateKey, LineEnding};
use rsa::signature::Verifier;
use serde_json::{Value, json};

use crate::support::{Recorded, Server, completion, dgem, shipped, stderr, stdout, support_reply};

const AUDIENCE: &str = "https://svc.run.app";
/// In every reply of the metadata server.
const FLAVOR: &str = "Metadata-Flavor: Google\r\n";
/// In front of every other source.
const NO_SOURCE: (&str, &str) = ("GCE_METADATA_HOST", "127.0.0.1:1");

/// A JWT for this audience that is valid for an hour.
fn jwt(audience: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let claims = json!({"aud": audience, "email": "sa@p.iam.gserviceaccount.com", "exp": now + 3600});
    let part = |text: String| URL_SAFE_NO_PAD.encode(text);
    format!("{}.{}.s1gnature", part("{\"alg\":\"RS256\"}".to_owned()), part(claims.to_string()))
}

fn host(server: &Server) -> &str {
    server.url.trim_start_matches("http://").trim_end_matches("/v1")
}

fn base(server: &Server) -> &str {
    server.url.trim_end_matches("/v1")
}

/// Wants exactly this token.
fn guarded(token: &str) -> Server {
    let expected = format!("Bearer {token}");
    Server::answering(move |request| match request.header("authorization") {
        // A server that repeats what it got, in a good reply as well, must not make us print it.
        Some(found) if found == expected => {
            let mut reply = support_reply();
            reply["diagnostics"]["thought"] = json!(format!("I got {found}"));
            (200, completion(&reply.to_string()).replace("tiny-model", &found))
        }
        found => (401, json!({"error": {"message": format!("not {found:?}")}}).to_string()),
    })
}

fn decide(url: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = dgem();
    command.args(["decide", "-v", "ticket=x", "--stats", "-f", "json", "-u", url, "-t"]);
    command.arg(shipped("support_triage.json.tmpl")).args(arguments).envs(variables.iter().copied());
    command.output().unwrap()
}

fn check(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    dgem().args(["auth", "check"]).args(arguments).envs(variables.iter().copied()).output().unwrap()
}

#[track_caller]
fn assert_silent(output: &Output, secrets: &[&str]) {
    for secret in secrets {
        let text = format!("{}{}", stdout(output), stderr(output));
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}

/// An ID token for `AUDIENCE`, from wherever the variables lead, reaches the server and is described by `auth check`.
#[track_caller]
fn assert_id_token(token: &str, variables: &[(&str, &str)], arguments: &[&str], source: &str) {
    let server = guarded(token);
    let mut flags = vec!["--gcp-auth=id", "--audience", AUDIENCE];
    flags.extend(arguments);
    let output = decide(&server.url, &flags, variables);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_silent(&output, &[token, "s1gnature"]);
    flags.push(&server.url);
    let output = check(&flags, variables);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for part in
        ["mode      Google ID token", AUDIENCE, "sa@p.iam.gserviceaccount.com", "expires   in 3", source]
    {
        assert!(text.contains(part), "{part} not in {text}");
    }
    assert_silent(&output, &[token, "s1gnature"]);
}

#[test]
fn the_metadata_server_gives_an_id_token_for_the_audience() {
    let token = jwt(AUDIENCE);
    let reply = token.clone();
    let metadata = Server::serving(FLAVOR, move |_| (200, reply.clone()));
    let address = host(&metadata).to_owned();
    assert_id_token(&token, &[("GCE_METADATA_HOST", &address)], &[], "metadata server");
    let request = metadata.all().pop().unwrap();
    let start = "GET /computeMetadata/v1/instance/service-accounts/default/identity?audience=https%3A%2F%2Fsvc.run.app&format=full ";
    assert!(request.head.starts_with(start), "{}", request.head);
    assert_eq!(request.header("metadata-flavor").as_deref(), Some("Google"));
}

#[test]
fn the_metadata_server_gives_an_access_token() {
    let metadata =
        Server::with_headers(200, FLAVOR, "{\"access_token\": \"ya29.s3cret\", \"expires_in\": 3599}");
    let server = guarded("ya29.s3cret");
    let variables = [("GCE_METADATA_HOST", host(&metadata))];
    let output = decide(&server.url, &["--gcp-auth=access"], &variables);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_silent(&output, &["ya29.s3cret"]);
    assert!(
        metadata
            .request()
            .head
            .starts_with("GET /computeMetadata/v1/instance/service-accounts/default/token ")
    );
}

#[test]
fn who_answers_in_place_of_the_metadata_server_gives_no_token() {
    let stranger = Server::new(200, "{\"access_token\": \"ya29.s3cret\", \"expires_in\": 3599}");
    let server = guarded("ya29.s3cret");
    let output = decide(&server.url, &["--gcp-auth=access"], &[("GCE_METADATA_HOST", host(&stranger))]);
    let message = stderr(&output);
    assert_eq!((output.status.code(), server.got_nothing()), (Some(3), true), "{message}");
    assert!(
        message.contains("metadata server: no metadata server") && message.contains("gcloud: not on PATH"),
        "{message}"
    );
}

/// A token endpoint that checks the assertion as Google does, and the path of a key file that leads to it.
fn key_file(folder: &Path, answer: Value) -> (Server, String) {
    let key = rsa::RsaPrivateKey::new(&mut rsa::rand_core::OsRng, 2048).unwrap();
    let verifier = VerifyingKey::<rsa::sha2::Sha256>::new(key.to_public_key());
    let server = Server::answering(move |request| {
        let form = request.text();
        let assertion =
            form.strip_prefix("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=");
        let Some((text, signature)) = assertion.and_then(|assertion| assertion.rsplit_once('.')) else {
            return (400, json!({"error": "invalid_request"}).to_string());
        };
        let signature = Signature::try_from(&URL_SAFE_NO_PAD.decode(signature).unwrap()[..]).unwrap();
        let (header, claims) = text.split_once('.').unwrap();
        let read =
            |part: &str| serde_json::from_slice::<Value>(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap();
        let claims = read(claims);
        let kind = match (claims["target_audience"].as_str(), claims["scope"].as_str()) {
            (Some(AUDIENCE), None) => "id_token",
            (None, Some("https://www.googleapis.com/auth/cloud-platform")) => "access_token",
            _ => {
                return (
                    400,
                    json!({"error": "invalid_scope", "error_description": "scope and target"}).to_string(),
                );
            }
        };
        let good = verifier.verify(text.as_bytes(), &signature).is_ok()
            && read(header)["alg"] == "RS256"
            && claims["iss"] == "sa@p.iam.gserviceaccount.com"
            && claims["sub"] == claims["iss"]
            && claims["aud"].as_str().unwrap().ends_with("/token")
            && claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap() <= 3600;
        if !good {
            return (400, json!({"error": "invalid_grant"}).to_string());
        }
        (200, json!({kind: answer[kind], "expires_in": 3600}).to_string())
    });
    let path = folder.join("key.json");
    let pem = key.to_pkcs8_pem(LineEnding::LF).unwrap();
    let file = json!({"type": "service_account", "client_email": "sa@p.iam.gserviceaccount.com", "private_key": *pem,
        "token_uri": format!("{}/token", base(&server))});
    fs::write(&path, file.to_string()).unwrap();
    (server, path.to_str().unwrap().to_owned())
}

#[test]
fn a_service_account_key_is_exchanged_for_both_kinds_of_token() {
    let folder = tempfile::tempdir().unwrap();
    let token = jwt(AUDIENCE);
    let (_endpoint, path) =
        key_file(folder.path(), json!({"id_token": token, "access_token": "ya29.s3cret"}));
    let variables = [("GOOGLE_APPLICATION_CREDENTIALS", path.as_str())];
    assert_id_token(&token, &variables, &[], "key of sa@p.iam.gserviceaccount.com");
    let server = guarded("ya29.s3cret");
    let output = decide(&server.url, &["--gcp-auth=access"], &variables);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_silent(&output, &["ya29.s3cret", "PRIVATE KEY"]);
}

#[test]
fn a_service_account_is_impersonated_with_the_token_of_the_caller() {
    let folder = tempfile::tempdir().unwrap();
    let token = jwt(AUDIENCE);
    let (_endpoint, path) = key_file(folder.path(), json!({"access_token": "ya29.caller"}));
    let reply = json!({"token": token}).to_string();
    let iam = Server::answering(move |request| {
        let caller = request.header("authorization").as_deref() == Some("Bearer ya29.caller");
        let right = request.json()["audience"] == AUDIENCE && request.json()["includeEmail"] == true;
        if caller && right {
            (200, reply.clone())
        } else {
            (403, "{\"error\": {\"message\": \"denied\"}}".to_owned())
        }
    });
    let variables = [
        ("GOOGLE_APPLICATION_CREDENTIALS", path.as_str()),
        ("CLOUDSDK_API_ENDPOINT_OVERRIDES_IAMCREDENTIALS", base(&iam)),
    ];
    let flag = ["--impersonate-service-account", "target@p.iam.gserviceaccount.com"];
    assert_id_token(&token, &variables, &flag, "IAM for target@p.iam.gserviceaccount.com");
    let request = iam.request();
    let path_start = "POST /v1/projects/-/serviceAccounts/target@p.iam.gserviceaccount.com:generateIdToken ";
    assert!(request.head.starts_with(path_start), "{}", request.head);

    // The same by a file.
    let inner: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let file = json!({"type": "impersonated_service_account", "source_credentials": inner,
        "service_account_impersonation_url": "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/target@p.iam.gserviceaccount.com:generateAccessToken"});
    let second = folder.path().join("impersonated.json");
    fs::write(&second, file.to_string()).unwrap();
    let variables = [("GOOGLE_APPLICATION_CREDENTIALS", second.to_str().unwrap()), variables[1]];
    assert_id_token(&token, &variables, &[], "IAM for target@p.iam.gserviceaccount.com");
}

#[test]
fn user_credentials_are_a_last_resort_and_say_so_when_refused() {
    let folder = tempfile::tempdir().unwrap();
    let token = jwt("764086051850.apps.googleusercontent.com");
    let reply = json!({"id_token": token, "access_token": "ya29.user", "expires_in": 3600}).to_string();
    let endpoint = Server::new(200, reply);
    let file = json!({"type": "authorized_user", "client_id": "cid", "client_secret": "cs3cret", "refresh_token": "r3fresh"});
    fs::write(folder.path().join("application_default_credentials.json"), file.to_string()).unwrap();
    let address = format!("{}/token", base(&endpoint));
    let variables =
        [("CLOUDSDK_CONFIG", folder.path().to_str().unwrap()), ("CLOUDSDK_AUTH_TOKEN_HOST", &address)];
    let refusing = Server::new(403, "{}");
    let output = decide(&refusing.url, &["--gcp-auth=id", "--audience", AUDIENCE], &variables);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("user credentials cannot set an audience"), "{}", stderr(&output));
    assert_silent(&output, &[&token, "cs3cret", "r3fresh"]);
    let form = endpoint.request().text();
    assert_eq!(form, "grant_type=refresh_token&client_id=cid&client_secret=cs3cret&refresh_token=r3fresh");
    let server = guarded("ya29.user");
    let output = decide(&server.url, &["--gcp-auth=access"], &variables);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_silent(&output, &["ya29.user", "cs3cret", "r3fresh"]);
}

/// A `gcloud` for PATH that writes down how it was called.
fn gcloud(folder: &Path, account: &str, token: &str) -> String {
    let program = folder.join("gcloud");
    let script = format!(
        "#!/bin/sh\necho \"$@\" >> {}/calls\ncase \"$1 $2\" in\n'config get-value') echo '{account}';;\n'auth print-identity-token') echo '{token}';;\n*) echo 'ya29.gcloud';;\nesac\n",
        folder.display()
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    folder.to_str().unwrap().to_owned()
}

#[test]
fn gcloud_is_asked_with_an_audience_only_for_a_service_account() {
    for (account, is_service) in [("robot@p.iam.gserviceaccount.com", true), ("me@example.org", false)] {
        let folder = tempfile::tempdir().unwrap();
        let token = jwt(AUDIENCE);
        let path = gcloud(folder.path(), account, &token);
        assert_id_token(&token, &[("PATH", &path), NO_SOURCE], &[], &format!("gcloud ({account})"));
        let calls = fs::read_to_string(folder.path().join("calls")).unwrap();
        let call = calls.lines().find(|call| call.contains("print-identity-token")).unwrap();
        let with = format!("auth print-identity-token --audiences={AUDIENCE} --quiet");
        assert_eq!(call, if is_service { &with } else { "auth print-identity-token --quiet" });
    }
}

#[test]
fn gcloud_that_fails_is_quoted() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("gcloud");
    fs::write(&program, "#!/bin/sh\necho 'Reauthentication failed.' >&2\nexit 1\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let output = check(&["https://a.run.app"], &[("PATH", folder.path().to_str().unwrap()), NO_SOURCE]);
    assert_eq!(output.status.code(), Some(3));
    assert!(
        stderr(&output).contains("gcloud gave no token")
            && stderr(&output).contains("Reauthentication failed.")
    );
}

#[test]
fn case_36_without_any_credentials_every_source_is_listed() {
    let server = Server::deciding(&support_reply());
    let output =
        decide(&server.url, &["--gcp-auth=id", "--audience", AUDIENCE], &[NO_SOURCE, ("HOME", "/no/such")]);
    let message = stderr(&output);
    assert_eq!((output.status.code(), server.got_nothing()), (Some(3), true));
    let lines: Vec<&str> = message.lines().collect();
    assert!(lines[0].starts_with("error: no Google credentials for"), "{message}");
    for (line, part) in lines[1..5].iter().zip([
        "  GOOGLE_APPLICATION_CREDENTIALS: not set",
        "  application default credentials: no file /no/such/.config/gcloud/application_default_credentials.json",
        "  metadata server: 127.0.0.1:1",
        "  gcloud: not on PATH",
    ]) {
        assert!(line.starts_with(part), "{part}: {message}");
    }
    assert!(lines[5].starts_with("hint: "), "{message}");
}

#[test]
fn a_source_that_applies_and_fails_is_no_silent_step_to_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.json");
    let metadata = Server::new(200, jwt(AUDIENCE));
    for (content, part) in [
        ("not json", "it is no JSON (line 1"),
        ("{}", "it has no `type`"),
        ("{\"type\": \"external_account\"}", "--impersonate-service-account"),
        (
            "{\"type\": \"service_account\", \"client_email\": \"a\", \"token_uri\": \"https://x\", \"project_id\": \"p\"}",
            "its key cannot be used",
        ),
        ("{\"type\": \"poem\"}", "`poem`"),
    ] {
        fs::write(&path, content).unwrap();
        let variables = [
            ("GOOGLE_APPLICATION_CREDENTIALS", path.to_str().unwrap()),
            ("GCE_METADATA_HOST", host(&metadata)),
        ];
        let output = check(&["https://a.run.app"], &variables);
        assert_eq!(output.status.code(), Some(3), "{content}");
        assert!(stderr(&output).contains(part) && stderr(&output).contains("c.json"), "{}", stderr(&output));
    }
    assert!(metadata.got_nothing());
}

#[test]
fn case_37_a_token_that_is_refused_is_renewed_once() {
    let folder = tempfile::tempdir().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let minted = Arc::clone(&count);
    // The first token has been withdrawn.
    let metadata = Server::serving(FLAVOR, move |_| {
        let number = minted.fetch_add(1, Ordering::Relaxed);
        (200, json!({"access_token": format!("ya29.number{number}"), "expires_in": 3600}).to_string())
    });
    let variables = [("GCE_METADATA_HOST", host(&metadata))];
    let server = guarded("ya29.number1");
    let output = decide(&server.url, &["--gcp-auth=access"], &variables);
    assert_eq!((output.status.code(), count.load(Ordering::Relaxed)), (Some(0), 2), "{}", stderr(&output));
    let output = decide(&guarded("never").url, &["--gcp-auth=access", "--retries", "3"], &variables);
    assert_eq!((output.status.code(), count.load(Ordering::Relaxed)), (Some(3), 4));
    assert_silent(&output, &["ya29.number"]);
    assert!(stderr(&output).contains("(hidden)"), "{}", stderr(&output));
    // A file is read again, a token from the command line is what it is.
    let path = folder.path().join("token");
    fs::write(&path, "t0ken").unwrap();
    let output = decide(&guarded("never").url, &["--token-file", path.to_str().unwrap()], &[]);
    assert_silent(&output, &["t0ken"]);
    let server = guarded("never");
    let output = decide(&server.url, &["--token", "g1ven"], &[]);
    assert_eq!((output.status.code(), server.all().len()), (Some(3), 1));
    assert_silent(&output, &["g1ven"]);
}

#[test]
fn a_command_brings_a_token_and_its_failure_is_told_without_it() {
    let server = guarded("fr0m-command");
    let output = decide(&server.url, &["--token-command", "echo fr0m-command"], &[("PATH", "/usr/bin:/bin")]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_silent(&output, &["fr0m-command"]);
    for (command, part) in [
        ("echo fr0m-command; echo locked >&2; exit 3", "locked"),
        ("true", "empty"),
        ("echo fr0m-command two", "spaces"),
        ("yes fr0m-command", "more than 64 KiB"),
    ] {
        let output = decide(&server.url, &[], &[("PATH", "/usr/bin:/bin"), ("DGEM_TOKEN_COMMAND", command)]);
        assert_eq!(output.status.code(), Some(3), "{command}");
        assert!(stderr(&output).contains(part), "{command}: {}", stderr(&output));
        assert_silent(&output, &["fr0m-command"]);
    }
    let both = decide(&server.url, &["--token", "a", "--token-file", "b"], &[]);
    assert_eq!(both.status.code(), Some(2));
}

#[test]
fn case_35_no_output_of_any_command_holds_the_token() {
    let token = "s3cret-t0ken";
    let server = guarded(token);
    let policy = shipped("support_triage.json.tmpl");
    let policy = policy.to_str().unwrap();
    let decide = ["decide", "-v", "ticket=x", "-t", policy];
    let with =
        |more: &[&'static str]| decide.iter().copied().chain(more.iter().copied()).collect::<Vec<&str>>();
    let runs = [
        with(&["--stats"]),
        with(&["-f", "json", "--stats"]),
        with(&["--dry-run"]),
        with(&["--curl"]),
        vec!["models"],
        vec!["models", "--json"],
        vec!["doctor"],
        vec!["doctor", "--json"],
        vec!["auth", "check"],
        vec!["auth", "check", "--json"],
        vec!["config", "show", "--origin"],
    ];
    for arguments in &runs {
        for url in [&server.url, "http://127.0.0.1:1/v1", "http://198.51.100.1/v1", "ftp://x"] {
            let mut by_variable = dgem();
            by_variable.args(arguments).env("DGEM_URL", url).env("DGEM_TOKEN", format!("Bearer {token}"));
            let mut by_flag = dgem();
            by_flag.args(arguments).args(["-u", url, "-k", token]);
            let mut by_command = dgem();
            let command = format!("echo {token}");
            by_command
                .args(arguments)
                .args(["-u", url, "--token-command", &command])
                .env("PATH", "/usr/bin:/bin");
            for run in [&mut by_variable, &mut by_flag, &mut by_command] {
                assert_silent(&run.output().unwrap(), &[token]);
            }
        }
    }
}

#[test]
fn a_google_token_does_not_leave_in_the_clear_nor_to_a_stranger() {
    let metadata = Server::with_headers(200, FLAVOR, jwt(AUDIENCE));
    let variables = [("GCE_METADATA_HOST", host(&metadata))];
    for url in ["http://svc.run.app", "http://us-central1-aiplatform.googleapis.com/v1"] {
        let output = check(&[url], &variables);
        assert_eq!(output.status.code(), Some(3));
        assert!(stderr(&output).contains("plain http"), "{}", stderr(&output));
    }
    let output = check(&["https://example.org", "--gcp-auth"], &variables);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("no host of Google's"), "{}", stderr(&output));
    let output = check(&["https://example.org"], &variables);
    assert!(stdout(&output).contains("mode      none"), "{}", stdout(&output));
    assert!(metadata.got_nothing());
    // A token endpoint in the clear would see the assertion.
    let folder = tempfile::tempdir().unwrap();
    let (_server, path) = key_file(folder.path(), json!({}));
    let text = fs::read_to_string(&path).unwrap();
    let mut file: Value = serde_json::from_str(&text).unwrap();
    file["token_uri"] = json!("http://198.51.100.1/token");
    fs::write(&path, file.to_string()).unwrap();
    let output = check(&["https://a.run.app"], &[("GOOGLE_APPLICATION_CREDENTIALS", &path)]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("plain http"), "{}", stderr(&output));
}

#[test]
fn refusals_name_the_audience_and_the_account() {
    let metadata = Server::with_headers(200, FLAVOR, jwt(AUDIENCE));
    let variables = [("GCE_METADATA_HOST", host(&metadata))];
    for (status, part) in [
        (401, "the audience of the token is https://svc.run.app"),
        (403, "--member=serviceAccount:sa@p.iam.gserviceaccount.com --role=roles/run.invoker"),
    ] {
        let server = Server::new(status, "{}");
        let output = decide(&server.url, &["--gcp-auth=id", "--audience", AUDIENCE], &variables);
        assert_eq!(output.status.code(), Some(3));
        assert!(stderr(&output).contains(part), "{}", stderr(&output));
        // 401: a new token, once. 403: no.
        assert_eq!(server.all().len(), if status == 401 { 2 } else { 1 });
    }
}

#[test]
fn the_fake_token_endpoint_can_say_no() {
    let folder = tempfile::tempdir().unwrap();
    let (endpoint, _path) = key_file(folder.path(), json!({}));
    let body = "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=none";
    let mut stream = std::net::TcpStream::connect(host(&endpoint)).unwrap();
    let head = format!("POST /token HTTP/1.1\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    std::io::Write::write_all(&mut stream, head.as_bytes()).unwrap();
    let mut reply = String::new();
    std::io::Read::read_to_string(&mut stream, &mut reply).unwrap();
    assert!(reply.contains("invalid_request"), "{reply}");
    let recorded: Recorded = endpoint.request();
    assert_eq!(recorded.text(), body);
}

#[test]
#[cfg(target_os = "linux")]
fn a_token_command_that_hangs_is_named_and_ended_within_the_deadline() {
    let server = Server::deciding(&support_reply());
    let start = std::time::Instant::now();
    let hanging = |command: &str| {
        std::fs::read_dir("/proc").into_iter().flatten().flatten().any(|process| {
            let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).replace('\0', " ").trim() == command
        })
    };
    for (seconds, command) in [
        (7_211, vec!["decide", "-t", "support_triage", "-v", "ticket=x"]),
        (7_212, vec!["auth", "check"]),
        (7_213, vec!["ask", "x"]),
    ] {
        let sleep = format!("sleep {seconds}");
        let piped = format!("{sleep} | cat");
        let output = dgem()
            .env("PATH", std::env::var("PATH").unwrap())
            .args(command)
            .args(["-u", &server.url, "--timeout", "1", "--token-command", &piped])
            .output()
            .unwrap();
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(3), "{message}");
        assert!(
            message.contains("the token command gave no token: there is none after 1 s (--timeout)"),
            "{message}"
        );
        // A process that is killed ends when it is next to run.
        let killed = std::time::Instant::now();
        while hanging(&sleep) {
            assert!(killed.elapsed().as_secs() < 10, "{sleep} still runs");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
    assert!(server.got_nothing() && start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}
