//! Images: looked at by content, sent in front of the text in the order given, SVG drawn on this machine.

use std::path::{Path, PathBuf};

use crate::support::{Server, dgem, shipped, stderr, stdout, support_reply};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// A PNG of one pixel.
const PNG: &[u8] = &[
    0x89, b'P', b'N', b'G', 13, 10, 26, 10, 0, 0, 0, 13, b'I', b'H', b'D', b'R', 0, 0, 0, 1, 0, 0, 0, 1, 8,
    0, 0, 0, 0,
];
const JPEG: &[u8] = &[0xff, 0xd8, 0xff, 0xc0, 0, 11, 8, 0, 2, 0, 3, 1, 1, 0x11, 0];
const SVG: &str = r##"<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg" width="40" height="30"><rect width="40" height="30" fill="#f00"/></svg>"##;

fn write(folder: &Path, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn decide(url: &str, images: &[&str]) -> std::process::Output {
    let mut command = dgem();
    command.args(["decide", "-v", "ticket=x", "-u", url, "-t"]).arg(shipped("support_triage.json.tmpl"));
    for image in images {
        command.args(["-I", image]);
    }
    command.output().unwrap()
}

/// The parts of the user message.
fn parts(images: &[&str]) -> Vec<Value> {
    let server = Server::deciding(&support_reply());
    let output = decide(&server.url, images);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    server.request().json()["messages"][1]["content"].as_array().unwrap().clone()
}

fn url(part: &Value) -> String {
    assert_eq!(part["type"], "image_url");
    part["image_url"]["url"].as_str().unwrap().to_owned()
}

#[test]
fn case_41_images_come_in_their_order_before_the_text() {
    let folder = tempfile::tempdir().unwrap();
    let png = write(folder.path(), "a.png", PNG);
    // The name lies, the content does not.
    let jpeg = write(folder.path(), "b.png", JPEG);
    let parts = parts(&[png.to_str().unwrap(), jpeg.to_str().unwrap()]);
    assert!(url(&parts[0]).starts_with("data:image/png;base64,iVBORw0KGgo"), "{}", parts[0]);
    assert!(url(&parts[1]).starts_with("data:image/jpeg;base64,/9j/"), "{}", parts[1]);
    assert_eq!(
        (parts.len(), &parts[2]["type"], &parts[2]["text"]),
        (3, &"text".into(), &"{\"ticket\": \"x\"}".into())
    );
}

#[test]
fn case_42_svg_is_drawn_whatever_its_name_and_form() {
    let folder = tempfile::tempdir().unwrap();
    let svg = write(folder.path(), "a.svg", SVG);
    let hidden = write(folder.path(), "b.png", SVG);
    let encoded = "data:image/svg+xml;utf8,<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'><rect width='9' height='9' fill='%23f00'/></svg>";
    for image in [svg.to_str().unwrap(), hidden.to_str().unwrap(), encoded] {
        assert!(url(&parts(&[image])[0]).starts_with("data:image/png;base64,iVBORw0KGgo"), "{image}");
    }
    let remote = "https://example.org/picture.svg";
    assert_eq!(url(&parts(&[remote])[0]), remote);
}

#[test]
fn words_in_an_svg_are_drawn_or_it_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let plain = write(folder.path(), "a.svg", SVG);
    let text =
        write(folder.path(), "b.svg", SVG.replace("</svg>", "<text x=\"2\" y=\"20\">Pay now</text></svg>"));
    // The example of the user's README.
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/ui_component.svg");
    for image in [text.to_str().unwrap(), example] {
        let server = Server::deciding(&support_reply());
        let output = decide(&server.url, &[image]);
        if output.status.success() {
            let drawn = server.request().json()["messages"][1]["content"][0].clone();
            assert_ne!(url(&drawn), url(&parts(&[plain.to_str().unwrap()])[0]));
        } else {
            assert_eq!(output.status.code(), Some(2));
            assert!(stderr(&output).contains("no fonts on this machine"), "{}", stderr(&output));
        }
    }
}

#[test]
fn an_svg_cannot_send_other_files_of_this_machine() {
    let folder = tempfile::tempdir().unwrap();
    let png = url(&parts(&[write(folder.path(), "a.svg", SVG).to_str().unwrap()])[0]);
    let secret = write(folder.path(), "secret.svg", SVG.replace("#f00", "#00f"));
    let link = format!("<image href=\"{}\" width=\"40\" height=\"30\"/></svg>", secret.display());
    let linking = write(folder.path(), "b.svg", SVG.replace("</svg>", &link));
    assert_eq!(url(&parts(&[linking.to_str().unwrap()])[0]), png);
}

#[test]
fn a_data_uri_is_checked_and_passed_on() {
    assert!(
        url(&parts(&["data:image/gif;base64,R0lGODlhAQABAAAAACw="])[0])
            .starts_with("data:image/gif;base64,R0lGOD")
    );
}

#[test]
fn what_is_no_picture_is_refused_before_any_request() {
    let folder = tempfile::tempdir().unwrap();
    let mut huge = PNG.to_vec();
    huge[16..24].copy_from_slice(&[0, 1, 0, 0, 0, 1, 0, 0]);
    let file = |name: &str, bytes: &[u8]| write(folder.path(), name, bytes).to_str().unwrap().to_owned();
    for (image, parts) in [
        ("/no/such/picture.png".to_owned(), vec!["/no/such/picture.png"]),
        (file("e.png", b""), vec!["e.png", "empty"]),
        (file("t.png", b"hello"), vec!["t.png", "no image of a known kind"]),
        (file("p.png", b"%PDF-1.4"), vec!["a PDF file"]),
        (file("z.svgz", &[0x1f, 0x8b, 8]), vec!["z.svgz", "gunzip"]),
        (file("d.png", &PNG[..20]), vec!["damaged PNG"]),
        (file("h.png", &huge), vec!["65536 x 65536 pixels"]),
        (file("s.svg", b"<svg xmlns='x'"), vec!["s.svg", "SVG"]),
        (file("i.svg", nested(&huge).as_bytes()), vec!["i.svg", "inside", "65536 x 65536 pixels"]),
        ("http://example.org/a.png?key=s3cret".to_owned(), vec!["https", "example.org/a.png?…"]),
        ("data:image/png;base64,***".to_owned(), vec!["base64"]),
        ("data:image/png".to_owned(), vec!["comma"]),
    ] {
        let server = Server::deciding(&support_reply());
        let output = decide(&server.url, &[&image]);
        let message = stderr(&output);
        assert_eq!((output.status.code(), server.got_nothing()), (Some(2), true), "{image}");
        assert!(message.starts_with("error: ") && message.contains("\nhint: -I takes a PNG"), "{message}");
        for part in parts {
            assert!(message.contains(part), "{part} not in {message}");
        }
    }
}

/// A drawing that holds this PNG.
fn nested(png: &[u8]) -> String {
    let data = STANDARD.encode(png);
    let image = format!("<image href=\"data:image/png;base64,{data}\" width=\"40\" height=\"30\"/></svg>");
    SVG.replace("</svg>", &image)
}

#[test]
fn a_picture_inside_a_drawing_is_drawn() {
    // A whole PNG, made by the drawing itself: blue on the red of the outer one.
    let folder = tempfile::tempdir().unwrap();
    let draw = |name: &str, text: &str| {
        let path = write(folder.path(), name, text);
        url(&parts(&[path.to_str().unwrap()])[0]).split_once("base64,").unwrap().1.to_owned()
    };
    let blue = draw("blue.svg", &SVG.replace("#f00", "#00f"));
    assert_eq!(draw("outer.svg", &nested(&STANDARD.decode(&blue).unwrap())), blue);
}

#[test]
fn the_query_of_an_image_address_is_sent_and_not_shown() {
    let remote = "https://example.org/a.png?signature=s3cret";
    assert_eq!(url(&parts(&[remote])[0]), remote);
    let mut command = dgem();
    command.args(["decide", "--dry-run", "-v", "ticket=x", "-t"]).arg(shipped("support_triage.json.tmpl"));
    let output = command.args(["-I", remote]).output().unwrap();
    let text = stdout(&output) + &stderr(&output);
    assert!(text.contains("https://example.org/a.png?…") && !text.contains("s3cret"), "{text}");
}

#[test]
fn an_image_alone_is_something_to_decide_about() {
    let folder = tempfile::tempdir().unwrap();
    let png = write(folder.path(), "a.png", PNG);
    let schema = write(folder.path(), "s.json", r#"{"questions": [{"id": "q", "type": "boolean"}]}"#);
    let mut command = dgem();
    command.args(["decide", "--dry-run", "--schema"]).arg(schema).arg("-I").arg(png).args(["--state", "-"]);
    let output = command.write_stdin("").output().unwrap();
    let request: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let content = request["body"]["messages"][1]["content"].as_array().unwrap();
    assert_eq!(
        (content.len(), content[0]["image_url"]["url"].as_str().unwrap()),
        (1, "data:image/png;base64,… (0 KiB)")
    );
}

/// A drawing of a few bytes that takes minutes: a blur of a blur of a blur.
fn slow(folder: &Path) -> PathBuf {
    let filters = "<feGaussianBlur stdDeviation='50'/>".repeat(60);
    let svg = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' width='2000' height='2000'><filter id='f'>{filters}</filter><rect width='2000' height='2000' filter='url(#f)'/></svg>"
    );
    write(folder, "slow.svg", svg)
}

#[test]
fn a_drawing_that_takes_minutes_is_stopped_by_the_deadline_also_behind_others() {
    let folder = tempfile::tempdir().unwrap();
    let (slow, svg) = (slow(folder.path()), write(folder.path(), "a.svg", SVG));
    let start = std::time::Instant::now();
    for command in [vec!["decide", "-v", "ticket=x", "-t", "support_triage"], vec!["ask", "what is it?"]] {
        let output = dgem()
            .args(command)
            .args(["-u", "http://127.0.0.1:9/v1", "--timeout", "1", "-I"])
            .arg(&svg)
            .arg("-I")
            .arg(&slow)
            .output()
            .unwrap();
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(
            message.contains("slow.svg: drawing it, with those before it, takes longer than 1 s"),
            "{message}"
        );
    }
    assert!(start.elapsed().as_secs() < 30, "{:?}", start.elapsed());
}

#[test]
fn all_images_of_a_request_together_have_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let large = write(folder.path(), "large.png", [PNG, &vec![0; 13 << 20]].concat());
    let large = large.to_str().unwrap();
    let output = decide("http://127.0.0.1:9/v1", &[large, large]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("larger than 24 MiB"), "{}", stderr(&output));
}
