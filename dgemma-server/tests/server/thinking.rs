//! Thoughts: when the model is asked for one, and how they are kept apart from the answer.

use dgemma_server::Parts;
use dgemma_server::read::Text;
use serde_json::{Value, json};

use crate::common::talk::{comparable, generated, says, user, with};
use crate::common::{Server, demo_model, options, text, triage};

const SCRIPT: &str = "<|channel>thought\nFirst <b> then.\n\nSo 4.\n<channel|>The answer is 4.";

#[tokio::test]
async fn a_thought_stands_beside_the_answer_streamed_or_not() {
    for block in 1..=12 {
        let server = Server::start(says(SCRIPT, block)).await;
        let request = with(user("2+2?"), &json!({"enable_thinking": true}));
        let reply = server.completion(&request).await;
        let message = &reply["choices"][0]["message"];
        assert_eq!(message["content"], "The answer is 4.", "blocks of {block}");
        assert_eq!(message["reasoning_content"], "First <b> then.\n\nSo 4.");
        assert!(reply["usage"]["completion_tokens_details"]["reasoning_tokens"].as_u64().unwrap() > 4);
        assert_eq!(comparable(&server.streamed(&request).await), comparable(&reply["choices"][0]));
    }
}

#[tokio::test]
async fn what_is_no_thought_is_not_made_one() {
    for (script, content, reasoning) in [
        ("Just this.", "Just this.", None),
        // The empty thought that a template asks for.
        ("<|channel>thought\n<channel|>Yes.", "Yes.", None),
        ("<|channel>thought\n \n<channel|>Yes.", "Yes.", None),
        ("<|channel>tho", "", None),
        // Cut off in the middle.
        ("<|channel>thought\nStill at it", "", Some("Still at it")),
        ("<channel|>Yes.", "Yes.", None),
        ("No <|channel>thought\nor?\n<channel|> yes.", "No  yes.", Some("or?")),
    ] {
        let server = Server::start(says(script, 64)).await;
        let reply = server.completion(&user("Well?")).await;
        let message = &reply["choices"][0]["message"];
        assert_eq!(message["content"], content, "{script}");
        assert_eq!(message.get("reasoning_content"), reasoning.map(|text| json!(text)).as_ref(), "{script}");
        let streamed = server.streamed(&user("Well?")).await;
        assert_eq!(streamed["message"]["content"].as_str().unwrap_or_default(), content, "{script}");
        assert_eq!(streamed["message"].get("reasoning_content"), message.get("reasoning_content"));
    }
}

#[tokio::test]
async fn the_models_name_decides_then_the_fields_and_off_is_the_default() {
    let server = Server::start(says("ok", 64)).await;
    let on = json!({"enable_thinking": true});
    for (fields, thinks) in [
        (json!({}), false),
        (json!({"model": "demo:think"}), true),
        (json!({"model": "any:thing:think=true"}), true),
        (json!({"model": "demo:q4"}), false),
        (on.clone(), true),
        (json!({"chat_template_kwargs": on}), true),
        (json!({"chat_template_kwargs": {"other": 1}}), false),
        (json!({"model": "demo:think=false", "enable_thinking": true}), false),
        (json!({"model": "demo:think", "enable_thinking": false}), true),
        (json!({"enable_thinking": false, "chat_template_kwargs": on}), false),
    ] {
        server.engine.reset();
        server.completion(&with(user("Hi"), &fields)).await;
        let prompt = server.engine.log.prompts().remove(0);
        let tokenizer = text().tokenizer;
        let asked = prompt.contains(&tokenizer.token_id("<|think|>").unwrap());
        assert_eq!(asked, thinks, "{fields}");
    }
}

#[tokio::test]
async fn a_thought_that_the_template_leaves_open_is_closed_where_none_is_wanted() {
    let fake = says("ok", 64);
    let server = Server::start_loading(options(), fake.controls(), move || {
        let folder = tempfile::tempdir().unwrap();
        for name in ["tokenizer.json", "tokenizer_config.json"] {
            std::fs::copy(demo_model().join(name), folder.path().join(name)).unwrap();
        }
        let template = std::fs::read_to_string(demo_model().join("chat_template.jinja")).unwrap();
        std::fs::write(folder.path().join("chat_template.jinja"), template + "{#- knows <|channel> -#}")
            .unwrap();
        Ok(Parts { engine: fake, text: Text::from_dir(folder.path())? })
    })
    .await;
    server.wait_until_ready().await;
    let closed = generated("<|channel>thought\n<channel|>");
    for (thinking, is_closed) in [(false, true), (true, false)] {
        server.engine.reset();
        server.completion(&with(user("Hi"), &json!({"enable_thinking": thinking}))).await;
        let prompt = server.engine.log.prompts().remove(0);
        assert_eq!(prompt.ends_with(&closed), is_closed);
    }
}

#[tokio::test]
async fn a_decision_thinks_once_for_all_its_reads() {
    let server = Server::start(says("It is down <b>, so yes.\n<channel|>urgent: no", 64)).await;
    let mut schema = triage();
    schema["think"] = json!(200);
    schema["samples"] = json!(3);
    let decision = server.decide(&schema, "All is down").await;
    assert_eq!(decision["diagnostics"]["thought"], "It is down <b>, so yes.");
    assert_eq!(decision["answers"]["urgent"]["label"], "yes");
    let prompts = server.engine.log.prompts();
    let [thought, read] = prompts.as_slice() else { panic!("{} prompts", prompts.len()) };
    let ids = generated("It is down <b>, so yes.\n<channel|>");
    assert_eq!(*read, [thought.as_slice(), &ids].concat(), "the read goes on where the thought ended");
    let passes = server.engine.log.passes();
    let canvases: Vec<&Vec<u32>> = passes.iter().flatten().flat_map(|item| &item.canvases).collect();
    assert_eq!(canvases.len(), 3);
    // The model's turn is past its thought: the canvas begins with the answers.
    let channel = text().tokenizer.token_id("<|channel>").unwrap();
    assert!(canvases.iter().all(|ids| ids[0] != channel));
}

#[tokio::test]
async fn a_thought_keeps_its_budget() {
    let script = "one two three four five six seven eight";
    let ids = generated(script);
    let server = Server::start(says(script, 64)).await;
    let mut schema = triage();
    for most in [1, 3, 100] {
        schema["think"] = json!(most);
        let response: Value =
            serde_json::from_str(&server.chat(&schema, "s").await.text().await.unwrap()).unwrap();
        let content: Value =
            serde_json::from_str(response["choices"][0]["message"]["content"].as_str().unwrap()).unwrap();
        let taken = most.min(ids.len());
        let expected = text().tokenizer.decode(&ids[..taken]).unwrap();
        assert_eq!(content["diagnostics"]["thought"], expected.trim());
        // The rows of the three questions, and the thought.
        assert_eq!(response["usage"]["completion_tokens"], 3 + taken);
    }
}
