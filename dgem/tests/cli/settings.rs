//! Settings from the outside: which layer wins, what a mistake says, certificates and proxies.

use std::fs;
use std::path::Path;

use crate::support::{Server, completion, dgem, shipped, stderr, stdout, support_reply};

/// In a folder of its own with a repository, a project file and a user file.
struct Home(tempfile::TempDir);

impl Home {
    fn new(project: &str, user: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("repo/deep/down");
        fs::create_dir_all(&inner).unwrap();
        fs::create_dir(folder.path().join("repo/.git")).unwrap();
        fs::create_dir_all(folder.path().join("xdg/dgem")).unwrap();
        fs::write(folder.path().join("repo/.dgem.toml"), project).unwrap();
        fs::write(folder.path().join("xdg/dgem/config.toml"), user).unwrap();
        Self(folder)
    }

    fn dgem(&self, arguments: &[&str]) -> assert_cmd::Command {
        let mut command = dgem();
        command.current_dir(self.0.path().join("repo/deep/down"));
        command.env("XDG_CONFIG_HOME", self.0.path().join("xdg")).args(arguments);
        command
    }

    fn show(&self, arguments: &[&str]) -> std::process::Output {
        self.dgem(&["config", "show", "--origin"]).args(arguments).output().unwrap()
    }
}

fn decide(url: &str) -> assert_cmd::Command {
    let mut command = dgem();
    command.args(["decide", "-v", "ticket=x", "-u", url, "-t"]).arg(shipped("support_triage.json.tmpl"));
    command
}

#[test]
fn case_38_every_layer_is_read_and_the_right_one_wins() {
    let home = Home::new(
        "url = 'http://127.0.0.1:1/v1'\nmodel = 'project'\n",
        "model = 'user'\ntimeout = 7\n\nretries = 4\nconnect_timeout = '3s'\n",
    );
    let output = home
        .dgem(&["config", "show", "--origin", "--timeout", "9"])
        .env("DGEM_RETRIES", "5")
        .output()
        .unwrap();
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for (line, origin) in [
        ("url = \"http://127.0.0.1:1/v1\"", ".dgem.toml, line 1"),
        ("model = \"project\"", ".dgem.toml, line 2"),
        ("timeout = \"9\"", "--timeout"),
        ("retries = \"5\"", "DGEM_RETRIES"),
        ("connect_timeout = \"3s\"", "config.toml, line 5"),
    ] {
        let found = text.lines().find(|found| found.starts_with(line)).unwrap_or_default();
        assert!(found.ends_with(origin), "{line} {origin} not in {text}");
    }
    assert!(text.contains("# audience is not set"), "{text}");
    // What is printed is a settings file again.
    let plain = stdout(&home.dgem(&["config", "show"]).output().unwrap());
    let copy = home.0.path().join("copy.toml");
    fs::write(&copy, &plain).unwrap();
    let again = home.dgem(&["config", "show", "--config"]).arg(&copy).output().unwrap();
    assert_eq!((again.status.code(), stdout(&again)), (Some(0), plain), "{}", stderr(&again));
}

#[test]
#[cfg(unix)]
fn a_variable_that_is_no_text_is_an_error_and_not_unset() {
    use std::os::unix::ffi::OsStrExt;
    let value = std::ffi::OsStr::from_bytes(b"\xff");
    let output = dgem().args(["models"]).env("DGEM_URL", value).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("DGEM_URL") && stderr(&output).contains("UTF-8"), "{}", stderr(&output));
}

#[test]
fn a_misspelt_variable_is_told_with_the_one_that_was_meant() {
    let output = dgem()
        .args(["config", "show"])
        .env("DGEM_TIMOUT", "3")
        .env("DGEM_OTHER_THINGS", "1")
        .output()
        .unwrap();
    let text = stderr(&output);
    assert!(text.contains("DGEM_TIMOUT is set and has no effect; did you mean DGEM_TIMEOUT?"), "{text}");
    assert_eq!(text.matches("warning").count(), 1, "{text}");
}

#[test]
fn case_38_the_url_of_the_settings_is_used_by_every_command() {
    let server = Server::answering(|request| {
        let body = if request.head.contains("/models") {
            "{\"data\": [{\"id\": \"tiny-model\"}]}".to_owned()
        } else {
            completion(&support_reply().to_string())
        };
        (200, body)
    });
    let home = Home::new(&format!("url = '{}'", server.url), "");
    let policy = shipped("support_triage.json.tmpl").canonicalize().unwrap();
    let decide = ["decide", "-v", "ticket=x", "-t", policy.to_str().unwrap()];
    for arguments in [&decide[..], &["models"], &["doctor"]] {
        home.dgem(arguments).assert().success();
        assert!(!server.all().is_empty(), "{arguments:?}");
        for variable in ["DGEM_URL", "DGEM_VERTEX_URL"] {
            dgem().args(arguments).env(variable, &server.url).assert().success();
            assert!(!server.all().is_empty(), "{arguments:?} {variable}");
        }
    }
}

#[test]
fn case_38_a_file_that_cannot_be_read_or_holds_a_mistake_is_an_error() {
    let absent = dgem().args(["config", "show", "--config", "/no/such/file.toml"]).output().unwrap();
    assert_eq!(absent.status.code(), Some(2));
    assert!(stderr(&absent).contains("/no/such/file.toml") && stderr(&absent).contains("\nhint: "));
    for (project, user, parts) in [
        ("timeout = 'soon'", "", &["invalid timeout `soon`", ".dgem.toml, line 1", "\nhint: "][..]),
        ("", "\nretries = 'many'", &["invalid retries `many`", "config.toml, line 2"]),
        ("url = 'ftp://x'", "", &["invalid server URL", "set by", ".dgem.toml, line 1"]),
        ("retrys = 3", "", &[".dgem.toml, line 1: there is no setting `retrys`"]),
        ("", "= x", &["config.toml, line 1"]),
        ("model = ['a']", "", &["of type array"]),
        ("", "token = 's3cret'", &["does not belong in a file", "DGEM_TOKEN"]),
        ("token_command = 'cat x'", "", &["came with a project", "--token-command"]),
        ("gcp_auth = 'access'", "", &["came with a project"]),
    ] {
        let output = Home::new(project, user).show(&[]);
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{project} {user} {message}");
        for part in parts {
            assert!(message.contains(part), "{part} not in {message}");
        }
        assert!(!message.contains("s3cret"), "{message}");
    }
}

#[test]
fn a_project_cannot_send_the_users_token_to_its_own_server() {
    let home = Home::new("url = 'https://198.51.100.1/v1'", "");
    let output = home.dgem(&["models"]).env("DGEM_TOKEN", "s3cret").output().unwrap();
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{message}");
    assert!(message.contains(".dgem.toml, line 1") && message.contains("DGEM_TOKEN"), "{message}");
    assert!(message.contains("-u https://198.51.100.1/v1") && !message.contains("s3cret"), "{message}");
    // A server on this machine is the user's own.
    let server = Server::new(200, "{\"data\": []}");
    let home = Home::new(&format!("url = '{}'", server.url), "");
    home.dgem(&["models"]).env("DGEM_TOKEN", "s3cret").assert().success();
    assert_eq!(server.request().header("authorization").as_deref(), Some("Bearer s3cret"));
}

/// The project names a host that anyone can have at Google; the user's variables ask for more than that host needs.
#[track_caller]
fn assert_refused_for_a_host_of_google(variables: &[(&str, &str)]) {
    let home = Home::new("url = 'https://evil-abc-uc.a.run.app/v1'", "");
    // No source of tokens answers: were one asked, the message would be another.
    let mut command = home.dgem(&["models"]);
    command.env("GCE_METADATA_HOST", "127.0.0.1:1").envs(variables.iter().copied());
    let output = command.output().unwrap();
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{message}");
    assert!(message.contains("refusing to send the token of DGEM_"), "{message}");
    assert!(message.contains(".dgem.toml, line 1"), "{message}");
}

#[test]
fn a_project_on_cloud_run_gets_no_access_token_of_the_users() {
    assert_refused_for_a_host_of_google(&[("DGEM_GCP_AUTH", "access")]);
}

#[test]
fn a_project_on_cloud_run_gets_no_id_token_for_another_service() {
    let audience = ("DGEM_AUDIENCE", "https://prod-abc-uc.a.run.app");
    assert_refused_for_a_host_of_google(&[audience]);
    assert_refused_for_a_host_of_google(&[audience, ("DGEM_GCP_AUTH", "id")]);
    // Its own audience opens nothing else: then only the credentials are missing.
    let home = Home::new("url = 'https://evil-abc-uc.a.run.app/v1'", "");
    let mut command = home.dgem(&["models"]);
    command.env("GCE_METADATA_HOST", "127.0.0.1:1").env("DGEM_GCP_AUTH", "id");
    let message = stderr(&command.output().unwrap());
    assert!(message.contains("no Google credentials"), "{message}");
}

#[test]
fn a_proxy_of_the_environment_is_used_for_other_machines_only() {
    let proxy = Server::deciding(&support_reply());
    let address = proxy.url.trim_end_matches("/v1").to_owned();
    for variable in ["HTTP_PROXY", "http_proxy", "ALL_PROXY"] {
        decide("http://decisions.invalid/v1").env(variable, &address).assert().success();
        let head = proxy.request().head;
        assert!(head.starts_with("POST http://decisions.invalid/v1/chat/completions HTTP/1.1"), "{head}");
    }
    decide("http://decisions.invalid/v1")
        .env("http_proxy", &address)
        .env("NO_PROXY", "decisions.invalid")
        .assert()
        .failure();
    assert!(proxy.got_nothing());
}

/// Speaks TLS with a certificate of its own; the path is that of the certificate.
fn tls_server(folder: &Path) -> (String, std::path::PathBuf) {
    use std::io::{Read, Write};
    use std::sync::Arc;

    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let path = folder.join("ca.pem");
    fs::write(&path, made.cert.pem()).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
    let config = Arc::new(config);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://localhost:{}/v1", listener.local_addr().unwrap().port());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = rustls::StreamOwned::new(connection, stream.unwrap());
            let body = "{\"data\": [{\"id\": \"over-tls\"}]}";
            // A client that does not trust us hangs up here.
            if stream.read(&mut [0; 8192]).is_ok_and(|count| count > 0) {
                let _ = write!(
                    stream,
                    "HTTP/1.1 200 X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                );
                let _ = stream.flush();
                stream.conn.send_close_notify();
                let _ = stream.flush();
            }
        }
    });
    (url, path)
}

#[test]
fn a_certificate_is_trusted_when_it_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (url, path) = tls_server(folder.path());
    let models = |arguments: &[&str]| dgem().args(["models", "-u", &url]).args(arguments).output().unwrap();
    let trusted = models(&["--cacert", path.to_str().unwrap()]);
    assert_eq!(trusted.status.code(), Some(0), "{}", stderr(&trusted));
    assert!(stdout(&trusted).contains("over-tls"));
    let untrusted = models(&[]);
    assert_eq!(untrusted.status.code(), Some(5), "{}", stderr(&untrusted));
    assert!(stderr(&untrusted).contains("is not trusted") && stderr(&untrusted).contains("--cacert"));
    for (content, part) in [
        ("", "none in it"),
        ("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n", "cannot use the certificates"),
    ] {
        fs::write(&path, content).unwrap();
        let output = models(&["--cacert", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(part), "{}", stderr(&output));
    }
}

#[test]
fn https_to_a_plain_server_says_to_use_http() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 8192]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
    });
    let output = decide(&format!("https://{address}/v1")).output().unwrap();
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(5), "{message}");
    assert!(
        message.contains("does not speak TLS") && message.contains(&format!("-u http://{address}/v1")),
        "{message}"
    );
}

#[test]
fn another_model_than_the_one_asked_for_is_told() {
    let server = Server::deciding(&support_reply());
    let output = decide(&server.url).args(["-m", "big-model"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stderr(&output), "warning: `big-model` was asked for, and `tiny-model` answered\n");
    for same in ["tiny-model", "tiny-model:think=false"] {
        assert_eq!(stderr(&decide(&server.url).args(["-m", same]).output().unwrap()), "");
    }
}

#[test]
#[cfg(unix)]
fn a_pipe_or_a_device_is_no_settings_file() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join(".dgem.toml");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    for arguments in [vec!["--config", "/dev/zero"], vec!["--config", ".dgem.toml"], vec![]] {
        let mut command = dgem();
        command.current_dir(folder.path()).timeout(std::time::Duration::from_secs(20));
        let output = command.args(["config", "show"]).args(&arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains("it is a pipe or a device, no file"), "{}", stderr(&output));
    }
}

#[test]
fn config_show_prints_what_can_be_read_also_with_a_mistake() {
    let folder = tempfile::tempdir().unwrap();
    for (text, line, kept) in [
        ("model = \"mine\"\nretrys = 3\n", "line 2", true),
        ("model = \"mine\"\nretries = [\n", "line ", false),
        ("model = \"mine\"\nretries = \"many\"\n", "line 2", true),
    ] {
        std::fs::write(folder.path().join(".dgem.toml"), text).unwrap();
        let output = dgem()
            .current_dir(folder.path())
            .args(["config", "show", "--origin", "--timeout", "7"])
            .output()
            .unwrap();
        let (shown, message) = (stdout(&output), stderr(&output));
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(line) && message.contains(".dgem.toml"), "{message}");
        assert!(shown.contains("timeout = \"7\"  # --timeout") && shown.contains("url = "), "{shown}");
        assert_eq!(shown.contains("model = \"mine\""), kept, "{shown}");
    }
}
