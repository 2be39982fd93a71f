//! `download` against a hub on loopback that drops, truncates, corrupts, redirects and throttles.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Request, Response, StatusCode, header};
use dgemma_server::Error;
use dgemma_server::download::{Access, CHUNK_BYTES, MARKER, Marker, Options, Summary, run};
use futures_util::stream::{self, StreamExt as _};
use serde_json::{Value, json};
use sha2::Digest as _;
use tempfile::TempDir;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const CHUNK: u64 = 1000;

/// What is wrong with a hub. Each fault happens as often as its number says.
#[derive(Default)]
struct Faults {
    /// Ranges whose connection breaks half way.
    drop: AtomicUsize,
    /// Ranges with one byte changed.
    corrupt: AtomicUsize,
    /// Ranges answered 429 with `Retry-After: 0`.
    throttle: AtomicUsize,
    /// Ranges answered 500.
    fail: AtomicUsize,
    /// All ranges are answered with the whole file.
    no_ranges: AtomicBool,
    /// All ranges are redirected to this address.
    redirect: Mutex<Option<String>>,
    /// Another bytes' range than asked for.
    shift: AtomicUsize,
}

#[derive(Default)]
struct Hub {
    files: HashMap<String, Vec<u8>>,
    faults: Faults,
    token: Option<&'static str>,
    /// `PATH RANGE` of every request for content.
    asked: Mutex<Vec<String>>,
    /// Values of `Authorization` that came.
    authorised: Mutex<Vec<String>>,
    extra_nodes: Vec<Value>,
    pages: bool,
}

fn takes(counter: &AtomicUsize) -> bool {
    counter.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

impl Hub {
    fn new() -> Self {
        let bytes = |count: usize, step: usize| (0..count).map(|i| (i * step % 251) as u8).collect();
        let files = [
            ("config.json".to_owned(), b"{}\n".to_vec()),
            ("model.bin".to_owned(), bytes(10_500, 7)),
            ("sub/tokenizer.json".to_owned(), bytes(1000, 3)),
            ("empty.txt".to_owned(), Vec::new()),
        ];
        Self { files: files.into(), ..Self::default() }
    }

    fn tree(&self) -> Vec<Value> {
        let mut nodes = vec![json!({"type": "directory", "path": "sub", "oid": "00"})];
        nodes.push(json!({"type": "file", "path": ".gitattributes", "oid": "00", "size": 5}));
        for (path, content) in &self.files {
            let git = sha1::Sha1::new_with_prefix(format!("blob {}\0", content.len())).chain_update(content);
            let mut node =
                json!({"type": "file", "path": path, "oid": hex(&git.finalize()), "size": content.len()});
            if path.starts_with("model") {
                let oid = hex(&sha2::Sha256::digest(content));
                node["oid"] = json!("of the pointer");
                node["size"] = json!(134);
                node["lfs"] = json!({"oid": oid, "size": content.len(), "pointerSize": 134});
            }
            nodes.push(node);
        }
        nodes.extend(self.extra_nodes.clone());
        nodes
    }

    async fn serve(self) -> (Arc<Self>, String) {
        let hub = Arc::new(self);
        let router = Router::new().fallback(answer).with_state(Arc::clone(&hub));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (hub, address)
    }

    fn asked(&self) -> Vec<String> {
        let mut asked = std::mem::take(&mut *self.asked.lock().unwrap());
        asked.sort();
        asked
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

fn status(status: StatusCode) -> Response<Body> {
    Response::builder().status(status).body(Body::empty()).unwrap()
}

async fn answer(State(hub): State<Arc<Hub>>, request: Request<Body>) -> Response<Body> {
    let headers = request.headers();
    let authorisation = headers.get(header::AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
    hub.authorised.lock().unwrap().extend(authorisation.clone());
    if let Some(token) = hub.token
        && authorisation != Some(format!("Bearer {token}"))
    {
        return status(StatusCode::UNAUTHORIZED);
    }
    let path = request.uri().path();
    if path == "/api/models/org/name/revision/main" {
        return Response::new(json!({"sha": COMMIT, "id": "org/name"}).to_string().into());
    }
    let tree = format!("/api/models/org/name/tree/{COMMIT}");
    if path == tree {
        let nodes = hub.tree();
        if !hub.pages {
            return Response::new(Value::from(nodes).to_string().into());
        }
        let at =
            request.uri().query().unwrap().split_once("cursor=").map_or(0, |(_, at)| at.parse().unwrap());
        let page: Vec<_> = nodes[at..].iter().take(2).cloned().collect();
        let mut response = Response::builder();
        if at + 2 < nodes.len() {
            let link = format!("<{tree}?recursive=true&cursor={}>; rel=\"next\"", at + 2);
            response = response.header(header::LINK, link);
        }
        return response.body(Value::from(page).to_string().into()).unwrap();
    }
    let content = path
        .strip_prefix(&format!("/org/name/resolve/{COMMIT}/"))
        .or_else(|| path.strip_prefix("/store/"))
        .and_then(|path| Some((path, hub.files.get(path)?)));
    match content {
        Some((name, content)) => hub.range(name, content, headers),
        None => status(StatusCode::NOT_FOUND),
    }
}

impl Hub {
    fn range(&self, name: &str, content: &[u8], headers: &HeaderMap) -> Response<Body> {
        let none = Faults::default();
        // The small files come first and would use the faults up.
        let faults = if name == "model.bin" { &self.faults } else { &none };
        if let Some(to) = &*self.faults.redirect.lock().unwrap() {
            let location = format!("{to}/store/{name}");
            return Response::builder()
                .status(302)
                .header(header::LOCATION, location)
                .body(Body::empty())
                .unwrap();
        }
        let range = headers[header::RANGE].to_str().unwrap();
        self.asked.lock().unwrap().push(format!("{name} {range}"));
        if takes(&faults.throttle) {
            return Response::builder()
                .status(429)
                .header(header::RETRY_AFTER, "0")
                .body(Body::empty())
                .unwrap();
        }
        if takes(&faults.fail) {
            return status(StatusCode::INTERNAL_SERVER_ERROR);
        }
        if self.faults.no_ranges.load(Ordering::SeqCst) {
            return Response::new(content.to_vec().into());
        }
        let (from, last) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
        let (mut from, last): (usize, usize) = (from.parse().unwrap(), last.parse().unwrap());
        if takes(&faults.shift) {
            from += 1;
        }
        let mut part = content[from..=last].to_vec();
        if takes(&faults.corrupt) {
            part[0] ^= 1;
        }
        let response = Response::builder()
            .status(206)
            .header(header::CONTENT_RANGE, format!("bytes {from}-{last}/{}", content.len()));
        if takes(&faults.drop) {
            let half = Bytes::copy_from_slice(&part[..part.len() / 2]);
            let pieces = stream::iter([Ok(half)]).chain(stream::once(async {
                // Until the first half has left.
                tokio::time::sleep(Duration::from_millis(50)).await;
                Err(std::io::Error::other("the cable was pulled"))
            }));
            return response.body(Body::from_stream(pieces)).unwrap();
        }
        response.body(part.into()).unwrap()
    }
}

fn options(address: &str, out: &Path) -> Options {
    Options {
        repo: "org/name".into(),
        revision: "main".into(),
        jobs: 3,
        chunk_bytes: CHUNK,
        out: out.into(),
        access: Access::new(Some(address.into()), None),
    }
}

async fn download(address: &str, out: &Path) -> Result<Summary, Error> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    run(&options(address, out)).await
}

/// The folder holds what the hub has, a marker that says so, and nothing else.
fn assert_whole(hub: &Hub, out: &Path) {
    for (path, content) in &hub.files {
        assert_eq!(&std::fs::read(out.join(path)).unwrap(), content, "{path}");
    }
    let marker: Marker = serde_json::from_slice(&std::fs::read(out.join(MARKER)).unwrap()).unwrap();
    assert_eq!((marker.repo.as_str(), marker.commit.as_str(), marker.files.len()), ("org/name", COMMIT, 4));
    assert_eq!(marker.files["model.bin"].sha256, Some(hex(&sha2::Sha256::digest(&hub.files["model.bin"]))));
    assert!(marker.files["config.json"].sha256.is_none() && marker.files["config.json"].git.is_some());
    let mut names: Vec<_> = std::fs::read_dir(out)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, [MARKER, ".download.lock", "config.json", "empty.txt", "model.bin", "sub"]);
}

fn folder() -> (TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("a folder/of mine");
    (dir, out)
}

#[tokio::test]
async fn every_file_comes_in_ranges_and_is_checked() {
    let (hub, address) = Hub { pages: true, ..Hub::new() }.serve().await;
    let (_dir, out) = folder();
    let summary = download(&address, &out).await.unwrap();
    assert_whole(&hub, &out);
    assert_eq!((summary.files, summary.bytes, summary.fetched_bytes), (4, 11_503, 11_503));
    let asked = hub.asked();
    assert_eq!(asked.len(), 1 + 11 + 1, "{asked:?}");
    assert!(asked.contains(&"model.bin bytes=10000-10499".to_owned()), "{asked:?}");
    assert!(hub.authorised.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_second_run_fetches_nothing_and_a_damaged_file_is_found() {
    let (hub, address) = Hub::new().serve().await;
    let (_dir, out) = folder();
    download(&address, &out).await.unwrap();
    hub.asked();
    assert_eq!(download(&address, &out).await.unwrap().fetched_bytes, 0);
    assert!(hub.asked().is_empty());

    let path = out.join("model.bin");
    let mut damaged = std::fs::read(&path).unwrap();
    damaged[5000] ^= 0x10;
    std::fs::write(&path, damaged).unwrap();
    std::fs::write(out.join("sub/tokenizer.json"), "short").unwrap();
    assert_eq!(download(&address, &out).await.unwrap().fetched_bytes, 11_500);
    assert_whole(&hub, &out);
}

#[tokio::test]
async fn broken_connections_throttling_and_faults_of_the_hub_are_waited_out() {
    let (hub, address) = Hub::new().serve().await;
    hub.faults.drop.store(3, Ordering::SeqCst);
    hub.faults.throttle.store(2, Ordering::SeqCst);
    hub.faults.fail.store(1, Ordering::SeqCst);
    hub.faults.shift.store(1, Ordering::SeqCst);
    let (_dir, out) = folder();
    download(&address, &out).await.unwrap();
    assert_whole(&hub, &out);
    // After a break it goes on from the middle of a range.
    assert!(hub.asked().iter().any(|asked| asked.contains("500-")));
}

#[tokio::test]
async fn a_file_that_came_wrong_comes_once_more_and_then_it_is_an_error() {
    let (hub, address) = Hub::new().serve().await;
    hub.faults.corrupt.store(1, Ordering::SeqCst);
    let (_dir, out) = folder();
    download(&address, &out).await.unwrap();
    assert_whole(&hub, &out);

    std::fs::remove_file(out.join("model.bin")).unwrap();
    hub.faults.corrupt.store(usize::MAX, Ordering::SeqCst);
    let error = download(&address, &out).await.unwrap_err().to_string();
    assert!(error.contains("model.bin") && error.contains("SHA-256"), "{error}");
    assert!(!out.join(MARKER).exists() && !out.join("model.bin").exists());
}

#[tokio::test]
async fn what_came_before_an_interruption_is_kept() {
    let (hub, address) = Hub::new().serve().await;
    let (_dir, out) = folder();
    hub.faults.redirect.lock().unwrap().replace(format!("{address}/nowhere"));
    assert!(download(&address, &out).await.is_err());
    hub.faults.redirect.lock().unwrap().take();
    // The process dies after a few ranges: the future is dropped.
    hub.asked();
    let options = Options { jobs: 1, ..options(&address, &out) };
    {
        let mut running = std::pin::pin!(run(&options));
        while hub.asked.lock().unwrap().len() < 7 {
            tokio::select! {
                biased;
                _ = &mut running => panic!("too fast"),
                () = tokio::task::yield_now() => {}
            }
        }
    }
    assert!(!out.join(MARKER).exists());
    let before = hub.asked();
    run(&options).await.unwrap();
    assert_whole(&hub, &out);
    let after = hub.asked();
    let twice: Vec<_> = after.iter().filter(|asked| before.contains(asked)).collect();
    assert!(twice.len() <= 1, "only the range under way comes again: {twice:?}");
}

#[tokio::test]
async fn the_token_stays_with_the_hub_when_it_redirects_elsewhere() {
    let (store, store_address) = Hub::new().serve().await;
    let (hub, address) = Hub { token: Some("hf_secret"), ..Hub::new() }.serve().await;
    hub.faults.redirect.lock().unwrap().replace(store_address);
    let (_dir, out) = folder();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let access = Access::new(Some(address.clone()), Some("hf_secret\n".into()));
    assert!(!format!("{access:?}").contains("secret"));
    run(&Options { access, ..options(&address, &out) }).await.unwrap();
    assert_whole(&store, &out);
    assert!(!hub.authorised.lock().unwrap().is_empty());
    assert!(store.authorised.lock().unwrap().is_empty());
}

#[tokio::test]
async fn refusals_say_what_to_do() {
    let (_hub, address) = Hub { token: Some("hf_other"), ..Hub::new() }.serve().await;
    let (_dir, out) = folder();
    let error = download(&address, &out).await.unwrap_err().to_string();
    assert!(error.contains("401") && error.contains("HF_TOKEN"), "{error}");
    let access = Access::new(Some("http://hub.example".into()), Some("hf_secret".into()));
    let error = run(&Options { access, ..options("", &out) }).await.unwrap_err().to_string();
    assert!(error.contains("in the clear") && !error.contains("secret"), "{error}");

    let (_hub, address) = Hub::new().serve().await;
    let error =
        run(&Options { repo: "org/other".into(), ..options(&address, &out) }).await.unwrap_err().to_string();
    assert!(error.contains("404") && error.contains("org/other"), "{error}");
    for repo in ["name", "a/b/c", "../x", "org/na?me", ""] {
        let error =
            run(&Options { repo: repo.into(), ..options(&address, &out) }).await.unwrap_err().to_string();
        assert!(error.contains("organisation/name"), "{repo}: {error}");
    }
}

#[tokio::test]
async fn a_hub_without_ranges_is_named_and_one_that_leaves_the_folder_is_refused() {
    let (hub, address) = Hub::new().serve().await;
    hub.faults.no_ranges.store(true, Ordering::SeqCst);
    let (dir, out) = folder();
    let error = download(&address, &out).await.unwrap_err().to_string();
    assert!(error.contains("must serve ranges"), "{error}");

    for path in ["../evil", "/etc/evil", "a/../../evil", "a//b", ".dgemma-download.json", "a\\b"] {
        let node = json!({"type": "file", "path": path, "oid": "00", "size": 1});
        let (_hub, address) = Hub { extra_nodes: vec![node], ..Hub::new() }.serve().await;
        let error = download(&address, &out).await.unwrap_err().to_string();
        assert!(error.contains("names a file"), "{path}: {error}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn a_disk_that_is_too_small_is_found_before_anything_comes() {
    for (bytes, reason) in [(4_u64 << 40, "this disk has"), (1 << 60, "is localhost a hub")] {
        let lfs = json!({"oid": "00", "size": bytes});
        let node = json!({"type": "file", "path": "huge.bin", "oid": "00", "size": 1, "lfs": lfs});
        let (hub, address) = Hub { extra_nodes: vec![node], ..Hub::new() }.serve().await;
        let (_dir, out) = folder();
        let _ = rustls::crypto::ring::default_provider().install_default();
        let options = options(&address.replace("127.0.0.1", "localhost"), &out);
        let error = run(&Options { chunk_bytes: CHUNK_BYTES, ..options }).await.unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
        assert!(hub.asked().is_empty());
    }
}

#[tokio::test]
async fn two_downloads_into_one_folder_do_not_mix() {
    let (_hub, address) = Hub::new().serve().await;
    let (_dir, out) = folder();
    std::fs::create_dir_all(&out).unwrap();
    let held = std::fs::File::create(out.join(".download.lock")).unwrap();
    held.lock().unwrap();
    let error = download(&address, &out).await.unwrap_err().to_string();
    assert!(error.contains("another download"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_fetches_and_says_what_it_did() {
    let (hub, address) = Hub { token: Some("hf_secret"), ..Hub::new() }.serve().await;
    let (_dir, out) = folder();
    let command = |token: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dgemma-server"));
        command.args(["download", "--repo", "org/name", "-o"]).arg(&out);
        command.env("HF_ENDPOINT", &address).env("HF_TOKEN", token).env("NO_PROXY", "127.0.0.1");
        command
    };
    let output = tokio::task::block_in_place(|| command("hf_secret").output().unwrap());
    let (stdout, stderr) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{stderr}");
    assert!(stdout.contains(COMMIT) && stdout.contains("4 files"), "{stdout}");
    assert!(!stderr.contains("hf_secret"), "{stderr}");
    assert_whole(&hub, &out);
    let output = tokio::task::block_in_place(|| command("hf_wrong").output().unwrap());
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("HF_TOKEN"));
}
