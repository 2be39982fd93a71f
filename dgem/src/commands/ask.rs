//! `dgem ask`: a question in words → server → an answer that is shown while it comes.
//!
//! What can fail without a server fails before anything is sent. Ctrl-C leaves what there is, and the terminal as it was.

use std::io::{self, IsTerminal, Stderr, Stdout};
use std::time::Duration;

use super::{connect, note, warn, warn_other_model};
use crate::ask::{Ended, Fault, Part, Prompt, ROUTE, Reading, Screen, Stats, Terminals, Wanted, fault};
use crate::capped;
use crate::cli::{AskArgs, ConnectionFlags};
use crate::client::{Client, Event, Stream, Streamed, excerpt};
use crate::env::Environment;
use crate::error::Error;
use crate::exit::Exit;
use crate::foreign::visible;
use crate::image::Image;
use crate::output::Style;
use crate::settings::Settings;
use crate::signals::Signals;
use crate::state::State;
use crate::template::Catalogue;
use crate::variables::Variables;

type Terminal = Screen<Stdout, Stderr>;

/// A reply that has ended, and what the client itself measured.
struct Answered {
    ended: Ended,
    url: String,
    wall: Duration,
    first_text: Option<Duration>,
    retries: u32,
}

pub(super) async fn run(
    args: AskArgs,
    connection: &ConnectionFlags,
    environment: &Environment,
) -> Result<Exit, Error> {
    let settings = Settings::resolve(connection, environment)?;
    let prompt = prepare(&args, settings.timeout, environment)?;
    let terminals = Terminals { out: io::stdout().is_terminal(), err: io::stderr().is_terminal() };
    if args.show_diffusion && !terminals.err {
        warn("--show-diffusion has no effect: stderr is no terminal");
    }
    let wanted = Wanted {
        stream: !args.no_stream,
        think: args.think,
        max_tokens: args.max_tokens,
        seed: args.seed,
        usage: args.stats,
        drafts: args.show_diffusion && terminals.err,
    };
    let model = settings.model.clone();
    let client = connect::ready(Client::new(settings)?).await?;
    let mut signals =
        Signals::new().map_err(|cause| Error::System { what: "the handler of signals", cause })?;
    let style = Style::for_stream(&io::stderr(), environment);
    let mut screen = Screen::new(io::stdout(), io::stderr(), terminals, style);
    let body = prompt.body(model.as_deref(), wanted);
    let answered = tokio::select! {
        biased;
        () = signals.next() => None,
        answered = ask(&client, body, wanted.stream, &mut screen) => Some(answered),
    };
    // Before any word about it: what came ends its line, also where the rest is missing.
    let shown = screen.end();
    let Some(answered) = answered else {
        shown?;
        return Ok(Exit::Interrupted);
    };
    let answered = answered?;
    shown?;
    warn_other_model(model.as_deref(), answered.ended.model.as_deref());
    if wanted.drafts && !screen.has_drafts() {
        warn("this server shows no drafts");
    }
    Ok(end(&args, &answered, screen.has_answer()))
}

/// Says on stderr how it ended.
fn end(args: &AskArgs, answered: &Answered, has_answer: bool) -> Exit {
    let Answered { ended, url, wall, first_text, retries } = answered;
    match ended.finish_reason.as_deref() {
        None | Some("stop") => {}
        Some("length") => {
            warn("the reply was cut off: it has the most tokens that are allowed (--max-tokens)");
        }
        Some(reason) => warn(&format!("the reply ended for the reason `{}`", visible(reason))),
    }
    if !has_answer {
        warn("the reply holds no answer");
    }
    if args.stats {
        let stats = Stats { ended, url, wall: *wall, first_text: *first_text, retries: *retries };
        note(&format!("\n{stats}"));
    }
    if has_answer { Exit::Done } else { Exit::Rejected }
}

fn prepare(args: &AskArgs, timeout: Duration, environment: &Environment) -> Result<Prompt, Error> {
    let refuse = |reason: String| Error::BadPrompt { reason };
    let text = match &args.template {
        Some(wanted) => {
            let template = Catalogue::new(&args.catalogue, environment).load_text(wanted)?;
            let variables = Variables::gather(&args.variables)?;
            for name in template.unknown(&variables) {
                warn(&template.does_not_use(name));
            }
            template.text(&variables)?
        }
        None if args.prompt == ["-"] => capped::read(io::stdin().lock(), capped::VARIABLES_BYTES)
            .and_then(capped::text)
            .map_err(|cause| refuse(format!("stdin cannot be read: {cause}")))?,
        None => args.prompt.join(" "),
    };
    let images = Image::load_all(&args.images, timeout)?;
    if text.trim().is_empty() && images.is_empty() {
        return Err(refuse("it is empty".to_owned()));
    }
    Ok(Prompt { system: args.system.clone(), state: State { text, images } })
}

/// One request; its parts are shown as they come.
async fn ask(client: &Client, body: Vec<u8>, stream: bool, screen: &mut Terminal) -> Result<Answered, Error> {
    let sent = if stream {
        match client.stream(ROUTE, body).await? {
            Streamed::Events(stream) => return follow(*stream, screen).await,
            Streamed::Whole(sent) => sent,
        }
    } else {
        client.post(ROUTE, body).await?
    };
    let text = String::from_utf8_lossy(&sent.body);
    let mut reading = Reading::default();
    let parts = reading.take(&text).map_err(|fault| named(fault, &sent.url, &text, str::to_owned))?;
    if reading.ended.finish_reason.is_none() && parts.is_empty() {
        return Err(named(
            Fault::NotUnderstood("it holds no message".to_owned()),
            &sent.url,
            &text,
            str::to_owned,
        ));
    }
    parts.iter().try_for_each(|part| screen.show(part))?;
    Ok(Answered {
        ended: reading.ended,
        url: sent.url,
        wall: sent.wall,
        first_text: None,
        retries: sent.tally.retries,
    })
}

/// Shows a reply to its end.
async fn follow(mut stream: Stream, screen: &mut Terminal) -> Result<Answered, Error> {
    let mut reading = Reading::default();
    let mut first_text = None;
    loop {
        let event = match stream.next().await {
            Ok(Some(event)) => event,
            // All of the message was there; only the mark behind it, or the statistics, are missing.
            Ok(None) | Err(_) if reading.ended.finish_reason.is_some() => break,
            Ok(None) => {
                let reason = "it ended in the middle of the message".to_owned();
                return Err(stream.broke_off(reason, "try again; if it stays, look at the server's log"));
            }
            Err(error) => return Err(error),
        };
        if event.data.trim() == "[DONE]" {
            break;
        }
        let parts = parts(&mut reading, &event)
            .map_err(|fault| named(fault, &stream.url, &event.data, |text| stream.hidden(text)))?;
        for part in parts {
            if !matches!(part, Part::Draft(_)) {
                first_text.get_or_insert_with(|| stream.start.elapsed());
            }
            screen.show(&part)?;
        }
    }
    let wall = stream.start.elapsed();
    Ok(Answered { ended: reading.ended, url: stream.url, wall, first_text, retries: stream.tally.retries })
}

fn parts(reading: &mut Reading, event: &Event) -> Result<Vec<Part>, Fault> {
    match reading.take(&event.data) {
        // Some servers name the event, and send the error without a key around it.
        Ok(_) | Err(Fault::NotUnderstood(_)) if event.name == "error" => {
            Err(fault(&serde_json::from_str(&event.data).unwrap_or_else(|_| event.data.as_str().into())))
        }
        taken => taken,
    }
}

/// `hidden` takes out what no message may hold.
fn named(fault: Fault, url: &str, text: &str, hidden: impl Fn(&str) -> String) -> Error {
    let url = url.to_owned();
    match fault {
        Fault::NotUnderstood(reason) => Error::NoCompletion { url, reason, excerpt: excerpt(&hidden(text)) },
        Fault::Error { message, refused } => {
            Error::EndedInError { url, message: excerpt(&hidden(&message)), refused }
        }
    }
}
