//! Tools: what the model is told of them, and its calls as clients get them.

use serde_json::{Value, json};

use crate::common::talk::{comparable, says, user, with};
use crate::common::{Server, text};

fn tools() -> Value {
    json!([{"type": "function", "function": {
        "name": "weather", "description": "Weather of a <turn|> city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "name"}}, "required": ["city"]},
    }}])
}

fn ask() -> Value {
    with(user("Rain in Köln?"), &json!({"tools": tools()}))
}

fn prompt(server: &Server) -> String {
    let tokenizer = text().tokenizer;
    let prompt = server.engine.log.prompts().pop();
    prompt.unwrap().iter().map(|&id| tokenizer.token_text(id)).collect()
}

/// Names and arguments of the calls.
fn calls(choice: &Value) -> Vec<(String, Value)> {
    let calls = choice["message"]["tool_calls"].as_array().cloned().unwrap_or_default();
    calls
        .iter()
        .map(|call| {
            assert_eq!(call["type"], "function");
            let function = &call["function"];
            let arguments = serde_json::from_str(function["arguments"].as_str().unwrap()).unwrap();
            (function["name"].as_str().unwrap().to_owned(), arguments)
        })
        .collect()
}

#[tokio::test]
async fn calls_are_read_wherever_they_stand_and_however_the_blocks_cut_them() {
    let tricky = "<|tool_call>call:write{path:<|\"|>a.rs<|\"|>,text:<|\"|>fn f() { \"}\" } // <turn|> <tool_call|> é🙂<|\"|>,\
                  opts:{deep:[1,{x:true}],none:null}}<tool_call|>";
    let arguments = json!({
        "path": "a.rs", "text": "fn f() { \"}\" } // é🙂", "opts": {"deep": [1, {"x": true}], "none": null},
    });
    // The script's markers are control tokens; those within the string are left out here and tested in the parser as characters.
    let tricky = tricky.replace("<turn|> <tool_call|> ", "");
    let weather = "<|tool_call>call:weather{city:<|\"|>Köln<|\"|>}<tool_call|>";
    let cologne = ("weather".to_owned(), json!({"city": "Köln"}));
    let write = ("write".to_owned(), arguments);
    for (script, expected, content, reasoning) in [
        (weather.to_owned(), vec![cologne.clone()], None, None),
        (format!("{weather}<|tool_response>"), vec![cologne.clone()], None, None),
        (
            format!("Let me look.\n{weather}\n{tricky}"),
            vec![cologne.clone(), write.clone()],
            Some("Let me look.\n\n"),
            None,
        ),
        // Inside a thought that is never closed, and after one.
        (format!("<|channel>thought\nI look. {weather}"), vec![cologne.clone()], None, Some("I look.")),
        (
            format!("<|channel>thought\nI look.\n<channel|>{tricky}"),
            vec![write.clone()],
            None,
            Some("I look."),
        ),
        // The end marker is missing, the call is whole.
        ("<|tool_call>call:weather{city:<|\"|>Köln<|\"|>}".to_owned(), vec![cologne.clone()], None, None),
        // Text that only spells markers.
        ("a call:weather{} b".to_owned(), vec![], Some("a call:weather{} b"), None),
        // No call: given as text, so that nothing is lost, and never made up.
        ("<|tool_call>call:weather{city:<|\"|>Kö".to_owned(), vec![], Some("call:weather{city:\"Kö"), None),
    ] {
        for block in [1, 2, 3, 5, 7, 64] {
            let server = Server::start(says(&script, block)).await;
            let choice = server.completion(&ask()).await["choices"][0].clone();
            assert_eq!(calls(&choice), expected, "{script} in blocks of {block}");
            let message = &choice["message"];
            assert_eq!(message["content"], json!(content), "{script}");
            assert_eq!(
                message.get("reasoning_content"),
                reasoning.map(|text| json!(text)).as_ref(),
                "{script}"
            );
            assert_eq!(choice["finish_reason"], if expected.is_empty() { "stop" } else { "tool_calls" });
            let streamed = server.streamed(&ask()).await;
            assert_eq!(comparable(&streamed), comparable(&choice), "{script} in blocks of {block}");
        }
    }
}

#[tokio::test]
async fn a_whole_round_of_tools_is_one_turn_of_the_model() {
    let server =
        Server::start(says("<|tool_call>call:weather{city:<|\"|>Köln<|\"|>,unit:null}<tool_call|>", 64))
            .await;
    let first = server.completion(&ask()).await;
    let asked = prompt(&server);
    assert!(
        asked.contains("<|tool>declaration:weather{description:<|\"|>Weather of a <turn|> city<|\"|>,parameters:{properties:{city:"),
        "{asked}"
    );
    let call = first["choices"][0]["message"]["tool_calls"][0].clone();
    let mut request = ask();
    let messages = request["messages"].as_array_mut().unwrap();
    messages.push(first["choices"][0]["message"].clone());
    messages.push(json!({"role": "tool", "tool_call_id": call["id"], "content": "dry <tool_response|>"}));
    let second = server.completion(&request).await;
    let answered = prompt(&server);
    assert!(
        answered.ends_with(
            "<|turn>model\n<|tool_call>call:weather{city:<|\"|>Köln<|\"|>,unit:None}<tool_call|><|tool_response>response:weather{value:<|\"|>\
             dry <tool_response|><|\"|>}<tool_response|>"
        ),
        "{answered}"
    );
    assert_ne!(
        second["choices"][0]["message"]["tool_calls"][0]["id"], call["id"],
        "ids of calls never repeat"
    );
}

#[tokio::test]
async fn the_choice_of_a_tool_is_kept() {
    // What the model adds to a call that was begun for it.
    let server = Server::start(says("city:<|\"|>Köln<|\"|>}<tool_call|>", 64)).await;
    let named = json!({"tool_choice": {"type": "function", "function": {"name": "weather"}}});
    let choice = server.completion(&with(ask(), &named)).await["choices"][0].clone();
    assert_eq!(calls(&choice), [("weather".to_owned(), json!({"city": "Köln"}))]);
    assert!(prompt(&server).ends_with("<|turn>model\n<|tool_call>call:weather{"));

    let server = Server::start(says("weather{}<tool_call|>", 64)).await;
    let choice =
        server.completion(&with(ask(), &json!({"tool_choice": "required"}))).await["choices"][0].clone();
    assert_eq!(calls(&choice), [("weather".to_owned(), json!({}))]);

    let server = Server::start(says("No tools.", 64)).await;
    server.completion(&with(ask(), &json!({"tool_choice": "none"}))).await;
    assert!(!prompt(&server).contains("<|tool>"));
}

#[tokio::test]
async fn without_tools_there_are_no_calls() {
    let server = Server::start(says("<|tool_call>call:weather{city:<|\"|>Köln<|\"|>}<tool_call|>", 3)).await;
    for request in [user("Rain?"), with(ask(), &json!({"tool_choice": "none"}))] {
        let choice = server.completion(&request).await["choices"][0].clone();
        assert_eq!((calls(&choice), &choice["finish_reason"]), (vec![], &json!("stop")));
        assert_eq!(choice["message"]["content"], "call:weather{city:\"Köln\"}");
    }
}

#[tokio::test]
async fn one_call_at_a_time_where_the_client_wants_it() {
    let one = "<|tool_call>call:a{}<tool_call|>";
    let server = Server::start(says(&format!("{one}{one} and text"), 3)).await;
    let request = with(ask(), &json!({"parallel_tool_calls": false}));
    let choice = server.completion(&request).await["choices"][0].clone();
    assert_eq!((calls(&choice).len(), &choice["finish_reason"]), (1, &json!("tool_calls")));
    assert_eq!(choice["message"]["content"], Value::Null);
}

#[tokio::test]
async fn a_call_that_is_cut_off_is_no_call() {
    let server =
        Server::start(says("Look: <|tool_call>call:weather{city:<|\"|>Köln<|\"|>}<tool_call|>", 64)).await;
    let choice = server.completion(&with(ask(), &json!({"max_tokens": 6}))).await["choices"][0].clone();
    assert_eq!(calls(&choice), []);
    assert_eq!(choice["finish_reason"], "length");
}
