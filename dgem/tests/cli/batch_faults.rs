//! Inputs of `dgem batch` that would lose or double rows, and how a run that failed says why.

use crate::batch::{NOW, Place, Server, ids, rows, usual};
use crate::support::{stderr, stdout};
use serde_json::{Value, json};

/// A CSV in place of the rows.
fn csv(text: &str) -> (Place, Server) {
    let place = Place::new("");
    std::fs::write(place.path("rows.jsonl"), text).unwrap();
    (place, Server::new(NOW, usual))
}

#[test]
fn a_quotation_mark_that_is_not_closed_is_named_with_its_line_and_takes_in_no_rows() {
    for (text, parts) in [
        ("id,t\n1,a\n2,\"never closed\n3,c\n4,d\n", ["opens a cell on line 3", "never closed"]),
        (
            "id,t\n1,a\n2,\"oops\n3,c\n4,\"d\"\n",
            ["opens a cell on line 3", "in the middle of a cell on line 5"],
        ),
    ] {
        let (place, server) = csv(text);
        let output = place.run(&server.url, &["--input-format", "csv"]);
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        assert!(server.states().iter().all(|state| state == "{\"t\": \"a\"}"), "{:?}", server.states());
        assert!(!message.contains("0 rows"), "nothing was done, and nothing is counted: {message}");
    }
}

#[test]
fn a_column_or_a_key_that_is_there_twice_is_refused() {
    let (place, server) = csv("id,t,t\n1,a,b\n");
    let output = place.run(&server.url, &["--input-format", "csv"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("two columns are named `t`"), "{}", stderr(&output));
    let place = Place::new("{\"id\": 1, \"t\": \"a\", \"t\": \"b\"}\n{\"id\": 2, \"t\": \"c\"}\n");
    let output = place.run(&server.url, &["--keep-order"]);
    assert_eq!(output.status.code(), Some(6));
    let lines = place.lines();
    assert!(lines[0]["error"].as_str().unwrap().contains("\"t\" is written twice"), "{}", lines[0]);
    assert_eq!((&lines[1]["status"], server.states().len()), (&json!("ok"), 1));
}

#[test]
fn a_table_with_other_separators_or_cells_too_many_says_what_is_wrong_with_it() {
    let (place, server) = csv("id;t\n1;a\n");
    let output = place.run(&server.url, &["--input-format", "csv"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("other separators than commas"), "{}", stderr(&output));
    let (place, server) = csv("id,t\n1,a,b\n2,c\n");
    let output = place.run(&server.url, &["--input-format", "csv", "--keep-order"]);
    assert_eq!(output.status.code(), Some(6));
    let error = place.lines()[0]["error"].clone();
    assert!(error.as_str().unwrap().contains("3 cells, and the header names 2 columns"), "{error}");
    let (place, server) = csv("");
    let output = place.run(&server.url, &[]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stderr(&output).contains("there are no rows"), "{}", stderr(&output));
}

#[test]
fn an_id_that_is_there_twice_ends_the_same_on_resume_and_hides_no_answer() {
    let server = Server::new(NOW, usual);
    let place = Place::new(&(rows(2) + "{\"id\": \"r0\", \"t\": \"again\"}\n"));
    let first = place.run(&server.url, &["--keep-order"]);
    let second = place.run(&server.url, &["--resume"]);
    assert_eq!((first.status.code(), second.status.code()), (Some(6), Some(6)), "{}", stderr(&second));
    let lines = place.lines();
    assert_eq!(ids(&lines), ["r0", "r1", "r0 (row 3)", "r0 (row 3)"]);
    let statuses: Vec<&Value> = lines.iter().map(|line| &line["status"]).collect();
    assert_eq!(statuses, ["ok", "ok", "error", "error"]);
    assert_eq!(server.states().len(), 2);
}

#[test]
fn a_run_that_failed_says_why_with_the_most_frequent_reasons_first() {
    let server = Server::new(NOW, usual);
    let bad: String = (0..12).map(|row| json!({"id": row, "t": "bad"}).to_string() + "\n").collect();
    let place = Place::new(&(bad + "{broken\n[1]\n[2]\n" + &rows(1)));
    let output = place.run(&server.url, &[]);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(6), "{message}");
    let reasons: Vec<&str> =
        message.lines().skip_while(|line| *line != "why rows failed:").skip(1).take(3).collect();
    assert!(reasons[0].starts_with("     12 x ") && reasons[0].contains("HTTP 400: no good"), "{message}");
    assert_eq!(reasons[1], "      2 x line 14 is no JSON object");
    assert!(reasons[2].starts_with("      1 x line 13 is no JSON: "), "{message}");
    assert!(message.contains("16 rows: 1 ok, 15 errors in "), "{message}");
}

#[test]
fn one_is_one_row_and_a_report_about_nothing_has_no_table() {
    let server = Server::new(NOW, usual);
    let place = Place::new("{\"id\": 1, \"t\": \"bad\", \"expected_q\": \"billing\"}\n");
    let output = place.run(&server.url, &[]);
    let message = stderr(&output);
    assert!(message.contains("1 row: 0 ok, 1 error in "), "{message}");
    assert!(message.contains("1 row lacks an answer to `q` to compare; it is not counted"), "{message}");
    assert!(!message.contains("ACCURACY") && !message.contains("NaN"), "{message}");
    assert_eq!(stdout(&output), "");
}
